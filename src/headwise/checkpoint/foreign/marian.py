"""Marian and BART: post-norm encoder-decoders with biases everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.checkpoint.foreign.layout import (
    Entry,
    Layout,
    attention,
    linear,
    norm,
    reshaped,
    same,
    skipping,
)
from headwise.checkpoint.foreign.options import Options, activation_name
from headwise.config import ModelConfig
from headwise.model.encoder_decoder import EncoderDecoder

_UNUSED = 2  # rows of BART's position tables that no token reaches


def halved_sinusoids(length: int, d_model: int) -> Float[Tensor, "T D"]:
    """The paper's table as Marian has it: all sines, then all cosines.

    Ours takes them in turn (positions.py); the two differ by an order of the coordinates that the other
    weights of a model know of.
    """
    place = torch.arange(length, dtype=torch.float64)[:, None]  # [T, 1]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = place * torch.exp(even * (-math.log(10_000.0) / d_model))
    return torch.cat((angle.sin(), angle[:, : d_model // 2].cos()), dim=1).float()  # [T, D]


def read(options: Options) -> ModelConfig:
    """Their settings as ours, of both."""
    is_marian = options.text("model_type", "marian") == "marian"
    options.only("normalize_before", False, "their code has the norm behind the addition")
    options.only("add_final_layer_norm", False, "their code has none")
    vocab_size = options.integer("vocab_size", 58101 if is_marian else 50265)
    options.only("decoder_vocab_size", vocab_size, "headwise has one vocabulary for both sides")
    both = {name: options.integer(f"encoder_{name}", default) for name, default in _SIZES.items()}
    for name, value in both.items():
        why = "headwise builds both sides alike"
        options.only(f"decoder_{name}", value, why, default=_SIZES[name])
    is_shared = options.flag("share_encoder_decoder_embeddings", True)
    ties_output = options.is_body or options.flag("tie_word_embeddings", True)
    return ModelConfig(
        vocab_size=vocab_size,
        d_model=options.integer("d_model", 1024),
        num_heads=both["attention_heads"],
        d_ff=both["ffn_dim"],
        num_encoder_layers=options.integer("encoder_layers", 12),
        num_decoder_layers=options.integer("decoder_layers", 12),
        embedding_norm=not is_marian,
        activation=options.activation("activation_function", "gelu"),
        positions="learned",
        max_length=options.integer("max_position_embeddings", 1024),
        dropout=options.number("dropout", 0.1),
        attention_dropout=options.number("attention_dropout", 0.0),
        feedforward_dropout=options.number("activation_dropout", 0.0),
        attention_bias=True,
        output_bias="final_logits_bias" in options.names,
        tie_embeddings=is_shared and ties_output,
        tie_output=ties_output,
        scale_embedding=options.flag("scale_embedding", False),
        pad_id=options.pad_id if "pad_token_id" in options.values else (58100 if is_marian else 1),
    )


_SIZES = {"attention_heads": 16, "ffn_dim": 4096}


def write(family: str, config: ModelConfig) -> dict[str, object]:
    """Our settings as theirs."""
    own: dict[str, object] = {}
    if family == "marian":
        own["share_encoder_decoder_embeddings"] = config.tie_embeddings or not config.ties_output
        own["decoder_vocab_size"] = config.vocab_size
        own["decoder_start_token_id"] = config.pad_id
    return {
        **own,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        **{f"{side}_attention_heads": config.num_heads for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": config.width_ff for side in ("encoder", "decoder")},
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "activation_function": activation_name(config.activation),
        "max_position_embeddings": config.max_length,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.feedforward_dropout,
        "tie_word_embeddings": config.ties_output,
        "scale_embedding": config.scale_embedding,
        "is_encoder_decoder": True,
    }


def entries(family: str, config: ModelConfig, kind: type[nn.Module]) -> Iterator[Entry]:
    """Their tensors and ours."""
    if config.tie_embeddings:
        yield same("source_embedding.table.weight", "model.shared.weight")
    else:
        yield same("source_embedding.table.weight", "model.encoder.embed_tokens.weight")
        yield same("target_embedding.table.weight", "model.decoder.embed_tokens.weight")
    for side, mine, layers in (
        ("encoder", "source", config.num_encoder_layers),
        ("decoder", "target", config.num_decoder_layers),
    ):
        places = f"{mine}_positions.table", f"model.{side}.embed_positions.weight"
        if family == "marian":
            formula = partial(halved_sinusoids, config.max_length, config.d_model)
            yield replace(same(*places), formula=formula)
        else:
            yield skipping(_UNUSED, *places)
            yield from norm(f"{mine}_norm", f"model.{side}.layernorm_embedding")
        for n in range(layers):
            yield from _block(config, f"{side}.blocks.{n}", f"model.{side}.layers.{n}", side == "decoder")
    if config.output_bias:
        size = config.vocab_size or 0
        yield reshaped("output.bias", "final_logits_bias", (size,), (1, size))
    if not config.ties_output:
        yield same("output.weight", "lm_head.weight")


def _block(config: ModelConfig, ours: str, theirs: str, is_decoder: bool) -> Iterator[Entry]:
    looks = [("self_attention", "self_attn"), ("cross_attention", "encoder_attn")]
    for mine, name in looks if is_decoder else looks[:1]:
        names = (f"{theirs}.{name}.{part}_proj" for part in ("q", "k", "v", "out"))
        yield from attention(config, f"{ours}.{mine}", names)
        yield from norm(f"{ours}.after_{mine}.norm", f"{theirs}.{name}_layer_norm")
    yield from linear(f"{ours}.feedforward.wide", f"{theirs}.fc1")
    yield from linear(f"{ours}.feedforward.narrow", f"{theirs}.fc2")
    yield from norm(f"{ours}.after_feedforward.norm", f"{theirs}.final_layer_norm")


LAYOUTS = tuple(
    Layout(
        name.lower(),
        {f"{name}{head}": EncoderDecoder, f"{name}Model": EncoderDecoder},
        read,
        partial(write, name.lower()),
        partial(entries, name.lower()),
        prefix="model.",
        ties=(
            ("lm_head.weight", "model.shared.weight"),
            ("lm_head.weight", "model.decoder.embed_tokens.weight"),
            ("model.encoder.embed_tokens.weight", "model.shared.weight"),
            ("model.decoder.embed_tokens.weight", "model.shared.weight"),
        ),
        # untied, the shared table is not looked at
        ignored=(r"model\.(encoder|decoder)\.version", r"model\.shared\.weight"),
    )
    for name, head in (("Marian", "MTModel"), ("Bart", "ForConditionalGeneration"))
)
