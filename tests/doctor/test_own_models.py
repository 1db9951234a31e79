"""Nothing is found in our own models, of every kind and with every part; a part put in wrongly is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.build import Trainable
from headwise.config import ModelConfig, PatchConfig, RotaryConfig
from headwise.decode.sample import generate
from headwise.decode.sampling import Sampling
from headwise.doctor.check import checks
from headwise.doctor.examine import examine_subject
from headwise.doctor.report import Report
from headwise.doctor.subject import Subject
from headwise.model import language_model, text_encoder
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.language_model import LanguageModel
from headwise.model.rotary import turn
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder
from headwise.model.vision import ImageClassifier
from headwise.train.masked import NOT_ASKED, hide_tokens

V, PAD = 40, 0
YARN = RotaryConfig(scaling="yarn", factor=4.0, original_length=16)
LLAMA3 = RotaryConfig(scaling="llama3", factor=4.0, original_length=32, fast_turns=4.0, share=0.5)

# kind, where the padding stands, what is not as in the paper; each part at least once
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": (
        "language",
        "none",
        {
            "norm": "pre", "norm_kind": "rms", "positions": "rotary", "gated": True, "activation": "silu",
            "num_kv_heads": 2, "feedforward_bias": False, "scale_embedding": False, "tie_embeddings": False,
        },
    ),
    "qwen": (
        "language",
        "front",
        {
            "norm": "pre", "norm_kind": "rms", "positions": "rotary", "rotary": YARN, "qk_norm": True,
            "num_kv_heads": 1, "attention_bias": True, "attention_output_bias": False,
        },
    ),
    "mistral": ("language", "behind", {"norm": "pre", "positions": "rotary", "window": 4, "d_head": 8}),
    "neox": (
        "language",
        "none",
        {
            "norm": "pre", "positions": "rotary", "rotary": LLAMA3, "d_head": 8, "parallel_blocks": True,
            "output_bias": True,
        },
    ),
    "bloom": ("language", "front", {"norm": "pre", "positions": "alibi", "embedding_norm": True}),
    "relative": ("language", "none", {"norm": "pre", "positions": "relative", "scale_output": True}),
    "sentences": ("text", "behind", {"norm": "pre", "positions": "alibi", "num_kv_heads": 2}),
    "bert": (
        "masked",
        "behind",
        {
            "positions": "learned", "activation": "gelu", "attention_bias": True, "embedding_norm": True,
            "num_segments": 2, "output_bias": True,
        },
    ),
    "roberta": ("masked", "none", {"positions": "relative", "norm": "pre", "tie_embeddings": False}),
    "names": ("classes", "behind", {"positions": "learned", "norm": "pre", "pooling": "mean"}),
    "front": ("classes", "front", {"positions": "rotary", "pooling_activation": "relu"}),
    "vit": ("images", "none", {"norm": "pre", "positions": "learned", "activation": "gelu"}),
    "turned": (
        "images",
        "none",
        {"norm": "pre", "positions": "rotary", "pooling": "mean", "num_kv_heads": 2, "dropout": 0.1},
    ),
    "translator": (
        "pairs",
        "behind",
        {"norm": "pre", "positions": "rotary", "num_kv_heads": 2, "gated": True, "activation": "gelu"},
    ),
}  # fmt: skip
CLASSES: dict[str, type[Trainable] | type[TextEncoder]] = {
    "language": LanguageModel,
    "text": TextEncoder,
    "masked": MaskedLanguageModel,
    "classes": TextClassifier,
    "images": ImageClassifier,
    "pairs": EncoderDecoder,
}


def padded(ids: Tensor, side: str) -> Tensor:
    """Every second row without its last words, pushed to where the padding is not."""
    ids = ids.clone()
    for row in range(1, len(ids), 2):
        ids[row, : 2 * row] = PAD
    return ids.flip(1) if side == "behind" else ids


def cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, -2), labels.flatten(), ignore_index=NOT_ASKED)


def continued(model: LanguageModel, prompt: Tensor, new: int) -> Tensor:
    texts = [[token for token in row if token != model.config.pad_id] for row in prompt.tolist()]
    written = generate(model, texts, new, Sampling(temperature=0.0))
    return torch.cat((prompt, torch.tensor(written)), 1)


def subject(name: str) -> Subject:
    """A model of the table with a batch, as its training has them."""
    kind, side, settings = MODELS[name]
    pad = None if side == "none" else PAD
    layers = {"num_encoder_layers": 0 if kind == "language" else 2, "num_decoder_layers": 0}
    layers |= {"num_decoder_layers": 2} if kind in ("language", "pairs") else {}
    sizes = {"vocab_size": V, "d_model": 24, "num_heads": 4, "d_ff": 36, "max_length": 32, "num_classes": 3}
    pictures = PatchConfig(height=6, width=8, size=2, channels=3)
    config = ModelConfig(
        **{**sizes, **layers, "patches": pictures, "dropout": 0.0, "pad_id": pad, **settings}
    )
    model = CLASSES[kind](config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(4, V, (6, 15), generator=torch.Generator().manual_seed(5))
    ids = ids if pad is None else padded(ids, side)
    base = Subject(model, ids, kind="encoder", pad_id=pad, optimizer=optimizer, loss=cross_entropy)
    match kind:
        case "language":
            labels = ids[:, 1:].masked_fill(ids[:, 1:] == pad, NOT_ASKED) if pad is not None else ids[:, 1:]
            return replace(base, inputs=ids[:, :-1], kind="decoder", targets=labels, generate=continued)
        case "text":
            return replace(base, optimizer=None, loss=None)
        case "masked":
            hidden, labels = hide_tokens(ids, 0.4, 3, torch.arange(4, V), torch.Generator().manual_seed(1))
            real = ids != PAD
            hidden, labels = hidden.where(real, PAD), labels.where(real, NOT_ASKED)
            halves = (torch.arange(ids.size(1)) > 6).long().expand_as(ids).clone()
            given = {"ids": hidden, "segments": halves} if config.num_segments else {"ids": hidden}
            return replace(base, inputs=given, targets=labels)
        case "classes":
            return replace(base, targets=torch.arange(6) % 3)
        case "images":
            return replace(base, inputs=torch.randn(6, 3, 6, 8), targets=torch.arange(6) % 3)
        case _:
            target = padded(ids.flip(0)[:, :12], "behind")
            begun = torch.cat((torch.ones(6, 1, dtype=torch.long), target[:, :-1]), 1)
            labels = target.masked_fill(target == PAD, NOT_ASKED)
            return replace(base, inputs=(ids, begun), kind="encoder-decoder", targets=labels)


def verdict(report: Report, name: str) -> str:
    return report.verdicts[next(check.id for check in checks() if check.name == name)].verdict


SHORT = ("sentences", "names", "vit")  # the others are slow while every call's shapes are checked


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHORT else pytest.mark.slow) for name in MODELS]
)
def test_nothing_is_found_in_a_model_of_ours(name: str) -> None:
    report = examine_subject(subject(name))
    assert list(report.findings) == []
    assert not report.with_verdict("could-not-run")
    assert len(report.with_verdict("clear")) >= 40
    kind, side, settings = MODELS[name]
    decided = ["heads-merged-wrong", "heads-summed", "heads-identical", "norm-wrong-axis"]
    decided += ["no-scale"] if not settings.get("qk_norm") else []
    decided += ["rope-wrong"] if settings.get("positions") == "rotary" and kind != "images" else []
    decided += ["cache-mismatch", "cache-position-wrong"] if kind == "language" else []
    decided += ["padding-attended"] if side != "none" else []
    decided += ["left-padding-changes-answer"] if kind == "language" and side == "front" else []
    assert {check: verdict(report, check) for check in decided} == dict.fromkeys(decided, "clear")


def first_error(name: str) -> str:
    return next((found.name for found in examine_subject(subject(name)).findings), "nothing")


@pytest.mark.slow
def test_a_part_that_is_put_in_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as wrong:
        wrong.setattr(language_model, "causal_keep", lambda n, k, device: torch.ones(1, 1, n, k).bool())
        assert first_error("llama") == "causal-leak"
    with monkeypatch.context() as wrong:
        wrong.setattr(text_encoder, "mean_over", lambda x, keep: x.mean(1))
        assert first_error("names") == "padding-pooled"
    with monkeypatch.context() as wrong:
        odd = iter(range(1000))  # every second call: keys are turned, queries are not
        wrong.setattr(
            "headwise.model.attention.turn", lambda x, turns: turn(x, turns) if next(odd) % 2 else x
        )
        assert first_error("llama") == "rope-wrong"
