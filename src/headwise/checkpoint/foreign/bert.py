"""BERT, RoBERTa and DistilBERT: post-norm encoders, and the heads that fill masks and name classes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import nn

from headwise.checkpoint.foreign.layout import Entry, Layout, attention, linear, norm, same, skipping
from headwise.checkpoint.foreign.options import Options, activation_name, labels
from headwise.config import ModelConfig
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder


def read(options: Options) -> ModelConfig:
    """BERT's and RoBERTa's settings as ours."""
    options.only("is_decoder", False, "a text encoder looks both ways; load a model that was saved as one")
    options.only("add_cross_attention", False, "a text encoder has no source to look at")
    options.only("position_embedding_type", "absolute", "relative keys are not built in")
    is_roberta = options.text("model_type", "bert") == "roberta"
    pad_id = options.pad_id if "pad_token_id" in options.values else int(is_roberta)
    has_start = pad_id is not None or not is_roberta
    options.need(has_start, "pad_token_id", "an id", "RoBERTa counts its positions from there")
    segments = options.integer("type_vocab_size", 2)
    options.need(segments > 0, "type_vocab_size", "at least 1", "their code always adds a segment's vector")
    if options.architecture == "RobertaForMaskedLM":
        options.only("hidden_act", "gelu", "the head of RobertaForMaskedLM has no other", default="gelu")
    return ModelConfig(
        vocab_size=options.integer("vocab_size", 50265 if is_roberta else 30522),
        d_model=options.integer("hidden_size", 768),
        num_heads=options.integer("num_attention_heads", 12),
        d_ff=options.integer("intermediate_size", 3072),
        num_encoder_layers=options.integer("num_hidden_layers", 12),
        num_decoder_layers=0,
        norm_eps=options.number("layer_norm_eps", 1e-12),
        embedding_norm=True,
        activation=options.activation("hidden_act", "gelu"),
        positions="learned",
        max_length=options.integer("max_position_embeddings", 512) - (_unused(pad_id) if is_roberta else 0),
        dropout=options.number("hidden_dropout_prob", 0.1),
        attention_dropout=options.number("attention_probs_dropout_prob", 0.1),
        attention_bias=True,
        output_bias=True,
        tie_embeddings=options.flag("tie_word_embeddings", True),
        scale_embedding=False,
        num_segments=segments,
        num_classes=options.num_classes if "Classification" in options.architecture else None,
        pad_id=pad_id,
    )


def _unused(pad_id: int | None) -> int:
    """Rows of RoBERTa's table that no token reaches: its first position is pad_id + 1."""
    return 0 if pad_id is None else pad_id + 1


def write(name: str, config: ModelConfig) -> dict[str, object]:
    """Our settings as BERT's or RoBERTa's."""
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.width_ff,
        "num_hidden_layers": config.num_encoder_layers,
        "layer_norm_eps": config.norm_eps,
        "hidden_act": activation_name(config.activation),
        "max_position_embeddings": config.max_length + (_unused(config.pad_id) if name == "roberta" else 0),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "tie_word_embeddings": config.ties_output,
        "type_vocab_size": config.num_segments,
        **labels(config.num_classes),
    }


def entries(name: str, config: ModelConfig, kind: type[nn.Module]) -> Iterator[Entry]:
    """BERT's or RoBERTa's tensors and ours."""
    body = "" if kind is TextEncoder else "body."
    here, there = f"{body}embedding", f"{name}.embeddings"
    yield same(f"{here}.tokens.table.weight", f"{there}.word_embeddings.weight")
    places = f"{here}.positions.table", f"{there}.position_embeddings.weight"
    yield skipping(_unused(config.pad_id), *places) if name == "roberta" else same(*places)
    yield same(f"{here}.segments.weight", f"{there}.token_type_embeddings.weight")
    yield from norm(f"{here}.norm", f"{there}.LayerNorm")
    for n in range(config.num_encoder_layers):
        ours, theirs = f"{body}encoder.blocks.{n}", f"{name}.encoder.layer.{n}"
        names = [f"{theirs}.attention.self.{part}" for part in ("query", "key", "value")]
        yield from attention(config, f"{ours}.self_attention", [*names, f"{theirs}.attention.output.dense"])
        yield from norm(f"{ours}.after_self_attention.norm", f"{theirs}.attention.output.LayerNorm")
        yield from linear(f"{ours}.feedforward.wide", f"{theirs}.intermediate.dense")
        yield from linear(f"{ours}.feedforward.narrow", f"{theirs}.output.dense")
        yield from norm(f"{ours}.after_feedforward.norm", f"{theirs}.output.LayerNorm")
    head = _HEADS[name]
    if kind is MaskedLanguageModel:
        yield from linear("transform", head["transform"])
        yield from norm("norm", head["norm"])
        if config.ties_output:
            yield same("output.bias", head["bias"])
        else:
            yield from linear("output", head["output"])
    if kind is TextClassifier:
        yield from linear("pool", head["pool"])
        yield from linear("output", head["classes"])


_HEADS = {
    "bert": {
        "transform": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
        "output": "cls.predictions.decoder",
        "pool": "bert.pooler.dense",
        "classes": "classifier",
    },
    "roberta": {
        "transform": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "bias": "lm_head.bias",
        "output": "lm_head.decoder",
        "pool": "classifier.dense",
        "classes": "classifier.out_proj",
    },
}


def read_distil(options: Options) -> ModelConfig:
    """DistilBERT's settings as ours. Its sinusoids (sinusoidal_pos_embds) are in its files, as if learned."""
    return ModelConfig(
        vocab_size=options.integer("vocab_size", 30522),
        d_model=options.integer("dim", 768),
        num_heads=options.integer("n_heads", 12),
        d_ff=options.integer("hidden_dim", 3072),
        num_encoder_layers=options.integer("n_layers", 6),
        num_decoder_layers=0,
        norm_eps=1e-12,
        embedding_norm=True,
        activation=options.activation("activation", "gelu"),
        positions="learned",
        max_length=options.integer("max_position_embeddings", 512),
        dropout=options.number("dropout", 0.1),
        attention_dropout=options.number("attention_dropout", 0.1),
        attention_bias=True,
        output_bias=True,
        tie_embeddings=options.flag("tie_word_embeddings", True),
        scale_embedding=False,
        pooling_activation="relu",
        num_classes=options.num_classes if "Classification" in options.architecture else None,
        pad_id=options.pad_id if "pad_token_id" in options.values else 0,
    )


def write_distil(config: ModelConfig) -> dict[str, object]:
    """Our settings as DistilBERT's."""
    return {
        "vocab_size": config.vocab_size,
        "dim": config.d_model,
        "n_heads": config.num_heads,
        "hidden_dim": config.width_ff,
        "n_layers": config.num_encoder_layers,
        "activation": activation_name(config.activation),
        "max_position_embeddings": config.max_length,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "seq_classif_dropout": config.dropout,
        "tie_word_embeddings": config.ties_output,
        **labels(config.num_classes),
    }


def entries_distil(config: ModelConfig, kind: type[nn.Module]) -> Iterator[Entry]:
    """DistilBERT's tensors and ours."""
    body = "" if kind is TextEncoder else "body."
    here, there = f"{body}embedding", "distilbert.embeddings"
    yield same(f"{here}.tokens.table.weight", f"{there}.word_embeddings.weight")
    yield same(f"{here}.positions.table", f"{there}.position_embeddings.weight")
    yield from norm(f"{here}.norm", f"{there}.LayerNorm")
    for n in range(config.num_encoder_layers):
        ours, theirs = f"{body}encoder.blocks.{n}", f"distilbert.transformer.layer.{n}"
        names = (f"{theirs}.attention.{part}_lin" for part in ("q", "k", "v", "out"))
        yield from attention(config, f"{ours}.self_attention", names)
        yield from norm(f"{ours}.after_self_attention.norm", f"{theirs}.sa_layer_norm")
        yield from linear(f"{ours}.feedforward.wide", f"{theirs}.ffn.lin1")
        yield from linear(f"{ours}.feedforward.narrow", f"{theirs}.ffn.lin2")
        yield from norm(f"{ours}.after_feedforward.norm", f"{theirs}.output_layer_norm")
    if kind is MaskedLanguageModel:
        yield from linear("transform", "vocab_transform")
        yield from norm("norm", "vocab_layer_norm")
        if not config.ties_output:
            yield same("output.weight", "vocab_projector.weight")
        yield same("output.bias", "vocab_projector.bias")
    if kind is TextClassifier:
        yield from linear("pool", "pre_classifier")
        yield from linear("output", "classifier")


LAYOUTS = (
    Layout(
        "bert",
        {
            "BertModel": TextEncoder,
            "BertForMaskedLM": MaskedLanguageModel,
            "BertForPreTraining": MaskedLanguageModel,
            "BertForSequenceClassification": TextClassifier,
        },
        read,
        partial(write, "bert"),
        partial(entries, "bert"),
        prefix="bert.",
        ties=(
            ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
            ("cls.predictions.decoder.bias", "cls.predictions.bias"),
        ),
        # the pooler where nothing is classified; which of two sentences comes first
        ignored=(
            r"bert\.embeddings\.(position|token_type)_ids",
            r"bert\.pooler\.dense\.(weight|bias)",
            r"cls\.seq_relationship\.(weight|bias)",
            r"cls\.predictions\.bias",  # untied: the decoder's own counts
        ),
        respelled={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    ),
    Layout(
        "roberta",
        {
            "RobertaModel": TextEncoder,
            "RobertaForMaskedLM": MaskedLanguageModel,
            "RobertaForSequenceClassification": TextClassifier,
        },
        read,
        partial(write, "roberta"),
        partial(entries, "roberta"),
        prefix="roberta.",
        ties=(
            ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
            ("lm_head.decoder.bias", "lm_head.bias"),
        ),
        ignored=(
            r"roberta\.embeddings\.(position|token_type)_ids",
            r"roberta\.pooler\.dense\.(weight|bias)",
            r"lm_head\.bias",  # untied: the decoder's own counts
        ),
        respelled={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
    ),
    Layout(
        "distilbert",
        {
            "DistilBertModel": TextEncoder,
            "DistilBertForMaskedLM": MaskedLanguageModel,
            "DistilBertForSequenceClassification": TextClassifier,
        },
        read_distil,
        write_distil,
        entries_distil,
        prefix="distilbert.",
        ties=(("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),),
        ignored=(r"distilbert\.embeddings\.position_ids",),
    ),
)
