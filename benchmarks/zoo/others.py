"""Models that are no family of transformers: torch's layers used rightly, x-transformers, and headwise."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise import EncoderDecoder, ModelConfig
from headwise.checkpoint.build import build_model
from headwise.cli.train import config_of
from headwise.doctor.subject import Subject
from zoo import batches
from zoo.batches import CLASSES, FEED_FORWARD, HEADS, LAYERS, LENGTHS, MAX_LENGTH, PAD, VOCAB, WIDTH

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


class Places(nn.Module):
    """Token embedding, scaled, and sinusoids; `axis` is that of the positions in the ids."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.words = nn.Embedding(VOCAB, WIDTH, padding_idx=PAD)
        nn.init.normal_(self.words.weight, std=WIDTH**-0.5)
        rate = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000.0) / WIDTH))
        angle = torch.arange(MAX_LENGTH)[:, None] * rate
        table = torch.zeros(MAX_LENGTH, WIDTH)
        table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("table", table)

    def forward(self, ids: Tensor) -> Tensor:
        places = self.table[: ids.size(self.axis)]
        return self.words(ids) * math.sqrt(WIDTH) + (places if self.axis == 1 else places[:, None])


class Translator(nn.Module):
    """nn.Transformer whole, batch first or time-major, with all of its masks."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.axis = 1 if batch_first else 0
        self.batch_first = batch_first
        self.source = Places(self.axis)
        self.target = Places(self.axis)
        self.body = nn.Transformer(
            WIDTH, HEADS, LAYERS, LAYERS, FEED_FORWARD, dropout=0.1, batch_first=batch_first
        )
        self.output = nn.Linear(WIDTH, VOCAB)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        length = target.size(self.axis)
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        # torch wants the padding masks as [B, T] in either layout
        source_pad, target_pad = source == PAD, target == PAD
        if not self.batch_first:
            source_pad, target_pad = source_pad.t(), target_pad.t()
        hidden = self.body(
            self.source(source),
            self.target(target),
            tgt_mask=causal,
            src_key_padding_mask=source_pad,
            tgt_key_padding_mask=target_pad,
            memory_key_padding_mask=source_pad,
        )
        return self.output(hidden)


class Classifier(nn.Module):
    """nn.TransformerEncoder with a key padding mask, and the mean of the words alone."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Places(1)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, FEED_FORWARD, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, LAYERS)
        for matrix in self.body.parameters():  # the copies start alike: draw each anew
            if matrix.ndim > 1:
                nn.init.xavier_uniform_(matrix)
        self.output = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        pad = ids == PAD
        hidden = self.body(self.places(ids), src_key_padding_mask=pad)
        keep = (~pad)[..., None]
        return self.output((hidden * keep).sum(1) / keep.sum(1))


class LanguageModel(nn.Module):
    """A causal language model of nn.TransformerEncoder, pre-norm, with the causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.places = Places(1)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, FEED_FORWARD, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        for matrix in self.body.parameters():
            if matrix.ndim > 1:
                nn.init.xavier_uniform_(matrix)
        self.output = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        causal = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        return self.output(self.body(self.places(ids), mask=causal, is_causal=True))


def _subject(model: nn.Module, inputs: Any, targets: Tensor, kind: Any, loss: Any, **more: Any) -> Subject:
    rate = more.pop("learning_rate", 1e-3)
    return Subject(
        model=model,
        inputs=inputs,
        kind=kind,
        pad_id=PAD,
        targets=targets,
        loss=loss,
        optimizer=torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98), eps=1e-9),
        **more,
    )


def _translation(model: nn.Module, time_major: bool = False, **more: Any) -> Subject:
    batch = batches.translations()
    source, target = batch.inputs["input_ids"], batch.inputs["decoder_input_ids"]
    labels = batch.targets.masked_fill(batch.targets == batches.IGNORED, PAD)
    if time_major:
        source, target, labels = source.t(), target.t(), labels.t()
    return _subject(model, (source, target), labels, "encoder-decoder", batches.padded_loss, **more)


def torch_batch_first() -> Subject:
    torch.manual_seed(0)
    return _translation(Translator(batch_first=True), name="nn.Transformer batch first")


def torch_time_major() -> Subject:
    torch.manual_seed(0)
    with warnings.catch_warnings():  # torch regrets the nested tensors that it cannot use here
        warnings.simplefilter("ignore")
        model = Translator(batch_first=False)
    return _translation(model, True, layout="time-major", name="nn.Transformer time-major")


def torch_classifier() -> Subject:
    torch.manual_seed(0)
    batch = batches.sentences()
    return _subject(
        Classifier(),
        batch.inputs["input_ids"],
        batch.targets,
        "encoder",
        batches.class_loss,
        name="nn.TransformerEncoder classifier",
    )


def torch_language_model() -> Subject:
    torch.manual_seed(0)
    batch = batches.next_words(with_mask=False)
    return _subject(
        LanguageModel(),
        batch.inputs["input_ids"],
        batch.targets,
        "decoder",
        batches.token_loss,
        name="nn.TransformerEncoder language model",
    )


def x_decoder() -> Subject:
    from x_transformers import Decoder, TransformerWrapper

    torch.manual_seed(0)
    layers = Decoder(dim=WIDTH, depth=LAYERS, heads=HEADS, attn_dim_head=12, rotary_pos_emb=True)
    model = TransformerWrapper(num_tokens=VOCAB, max_seq_len=MAX_LENGTH, attn_layers=layers)
    batch = batches.next_words(with_mask=False)
    return _subject(
        model,
        batch.inputs["input_ids"],
        batch.targets,
        "decoder",
        batches.token_loss,
        name="x-transformers decoder",
    )


def x_encoder() -> Subject:
    from x_transformers import Encoder, TransformerWrapper

    torch.manual_seed(0)
    layers = Encoder(dim=WIDTH, depth=LAYERS, heads=HEADS, attn_dim_head=12)
    model = TransformerWrapper(num_tokens=VOCAB, max_seq_len=MAX_LENGTH, attn_layers=layers)
    batch = batches.hidden_words()
    inputs = {"x": batch.inputs["input_ids"], "mask": batch.inputs["attention_mask"].bool()}
    return _subject(
        model, inputs, batch.targets, "encoder", batches.token_loss, name="x-transformers encoder"
    )


def x_vision() -> Subject:
    from x_transformers import Encoder, ViTransformerWrapper

    torch.manual_seed(0)
    model = ViTransformerWrapper(
        image_size=24,
        patch_size=8,
        num_classes=CLASSES,
        attn_layers=Encoder(dim=WIDTH, depth=LAYERS, heads=HEADS, attn_dim_head=12),
    )
    batch = batches.pictures()
    made = _subject(
        model,
        batch.inputs["pixel_values"],
        batch.targets,
        "encoder",
        batches.class_loss,
        name="x-transformers vision",
    )
    return replace(made, pad_id=None)


def ours(name: str, **settings: Any) -> Callable[[], Subject]:
    """Our encoder-decoder in a small size, with these settings."""

    def make() -> Subject:
        torch.manual_seed(0)
        small = {
            "vocab_size": VOCAB,
            "d_model": WIDTH,
            "num_heads": HEADS,
            "d_ff": FEED_FORWARD,
            "num_encoder_layers": LAYERS,
            "num_decoder_layers": LAYERS,
            "max_length": MAX_LENGTH,
            "pad_id": PAD,
        }
        return _translation(EncoderDecoder(ModelConfig(**{**small, **settings})), name=name)

    return make


def recipe(path: Path) -> Callable[[], Subject]:
    """Our model as a shipped recipe makes it, but for the vocabulary and the number of classes."""

    def make() -> Subject:
        torch.manual_seed(0)
        config = config_of(path)
        kind, name = config.data.kind, f"recipe {path.stem}"
        words = {} if kind == "images" else {"vocab_size": VOCAB, "pad_id": PAD}
        model = build_model(replace(config, model=replace(config.model, num_classes=CLASSES, **words)))
        if kind == "images":
            patches = config.model.patches
            images = torch.randn(len(LENGTHS), patches.channels, patches.height, patches.width)
            labels = batches.pictures().targets
            made = _subject(model, images, labels, "encoder", batches.class_loss, name=name)
            return replace(made, pad_id=None)
        if kind == "labelled":
            batch = batches.sentences()
            ids = batch.inputs["input_ids"]
            return _subject(model, ids, batch.targets, "encoder", batches.class_loss, name=name)
        if kind == "text":
            batch = batches.next_words(with_mask=False)
            ids = batch.inputs["input_ids"]
            return _subject(model, ids, batch.targets, "decoder", batches.token_loss, name=name)
        return _translation(model, name=name, learning_rate=config.train.learning_rate)

    return make


OTHERS: dict[str, Callable[[], Subject]] = {
    "torch-batch-first": torch_batch_first,
    "torch-time-major": torch_time_major,
    "torch-classifier": torch_classifier,
    "torch-language-model": torch_language_model,
}
if importlib.util.find_spec("x_transformers") is not None:
    OTHERS |= {"x-decoder": x_decoder, "x-encoder": x_encoder, "x-vision": x_vision}
OTHERS |= {f"recipe-{path.stem}": recipe(path) for path in sorted(RECIPES.glob("*.yaml"))}
OTHERS |= {
    f"headwise-{name}": ours(f"headwise-{name}", **settings)
    for name, settings in {
        "paper": {},
        "pre-norm": {"norm": "pre"},
        "untied": {"tie_embeddings": False},
        "pre-norm-untied": {"norm": "pre", "tie_embeddings": False, "scale_embedding": False},
        "learned-positions": {"positions": "learned", "norm": "pre"},
        "gelu-biases": {"activation": "gelu", "attention_bias": True, "output_gain": "inverse-sqrt-heads"},
        "dropout": {"dropout": 0.3, "attention_dropout": 0.2, "feedforward_dropout": 0.2},
    }.items()
}
