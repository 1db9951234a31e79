"""Torch's own layers with our weights in them, and wrong versions of ours that must not agree with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.attention import MultiHeadAttention, attend
from headwise.model.block import DecoderBlock, EncoderBlock
from headwise.model.decoder import Decoder
from headwise.model.encoder import Encoder
from headwise.model.norm import LayerNorm, RMSNorm

TOLERANCE = 1e-10  # float64
VISIBLE = 1e-4  # what a wrong version must be off by, at least

# Paper's base in small. Every axis has its own size.
SMALL = {
    "vocab_size": 29,
    "d_model": 12,
    "num_heads": 3,
    "d_ff": 20,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "max_length": 32,
    "dropout": 0.0,
}
STACKS = [
    {"norm": "post", "activation": "relu", "attention_bias": False},
    {"norm": "pre", "activation": "relu", "attention_bias": True},
    {"norm": "post", "activation": "gelu", "attention_bias": True},
    {"norm": "pre", "activation": "gelu", "attention_bias": False, "feedforward_bias": False},
]


def small_config(**changes: object) -> ModelConfig:
    """A model of a few thousand parameters."""
    return ModelConfig(**{**SMALL, **changes})  # type: ignore[arg-type]


@torch.no_grad()
def shaken(module: nn.Module, amount: float = 0.1) -> nn.Module:
    """The module with every parameter moved, so that no bias is 0 and no gain is 1."""
    for parameter in module.parameters():
        parameter.add_(torch.randn_like(parameter) * amount)
    return module


Attend = Callable[..., Tensor]


def without_scale(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None, dropout: object = None, **rest: Any
) -> Tensor:
    return attend(q * math.sqrt(q.size(-1)), k, v, keep, **rest)


def with_flipped_mask(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None, dropout: object = None, **rest: Any
) -> Tensor:
    return attend(q, k, v, None if keep is None else ~keep, **rest)


def with_swapped_heads(
    q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None, dropout: object = None, **rest: Any
) -> Tensor:
    return attend(q.roll(1, 1), k, v, keep, **rest)


WRONG_TWINS: dict[str, Attend] = {
    "no scale": without_scale,
    "flipped mask": with_flipped_mask,
    "swapped heads": with_swapped_heads,
}


def _or_zeros(bias: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros(like.size(0), dtype=like.dtype) if bias is None else bias


@torch.no_grad()
def _copy_linear(ours: nn.Linear, theirs: nn.Linear) -> None:
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(_or_zeros(ours.bias, ours.weight))


@torch.no_grad()
def _copy_norm(ours: LayerNorm | RMSNorm, theirs: nn.LayerNorm) -> None:
    assert isinstance(ours, LayerNorm)
    theirs.weight.copy_(ours.gain)
    theirs.bias.copy_(ours.bias)


@torch.no_grad()
def torch_attention(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    """nn.MultiheadAttention with our weights: both stack W_Q, W_K and W_V in this order."""
    weight = ours.query_key_value.weight
    width = ours.query_key_value.in_features
    theirs = nn.MultiheadAttention(width, ours.num_heads, batch_first=True, dtype=weight.dtype)
    theirs.in_proj_weight.copy_(weight)
    theirs.in_proj_bias.copy_(_or_zeros(ours.query_key_value.bias, weight))
    _copy_linear(ours.output, theirs.out_proj)
    return theirs


def torch_encoder(ours: Encoder, config: ModelConfig) -> nn.TransformerEncoder:
    """nn.TransformerEncoder with our weights; norm=None for the paper's post-norm."""
    layer = nn.TransformerEncoderLayer(**_layer_options(config))
    last = _last_norm(ours.final_norm, config)
    theirs = nn.TransformerEncoder(layer, config.num_encoder_layers, last, enable_nested_tensor=False)
    for mine, other in zip(ours.blocks, theirs.layers, strict=True):
        assert isinstance(mine, EncoderBlock) and isinstance(other, nn.TransformerEncoderLayer)
        other.self_attn = torch_attention(mine.self_attention)
        _copy_norm(mine.after_self_attention.norm, other.norm1)
        _copy_linear(mine.feedforward.wide, other.linear1)
        _copy_linear(mine.feedforward.narrow, other.linear2)
        _copy_norm(mine.after_feedforward.norm, other.norm2)
    return theirs


def torch_decoder(ours: Decoder, config: ModelConfig) -> nn.TransformerDecoder:
    """nn.TransformerDecoder with our weights; norm=None for the paper's post-norm."""
    layer = nn.TransformerDecoderLayer(**_layer_options(config))
    theirs = nn.TransformerDecoder(layer, config.num_decoder_layers, _last_norm(ours.final_norm, config))
    for mine, other in zip(ours.blocks, theirs.layers, strict=True):
        assert isinstance(mine, DecoderBlock) and isinstance(other, nn.TransformerDecoderLayer)
        other.self_attn = torch_attention(mine.self_attention)
        _copy_norm(mine.after_self_attention.norm, other.norm1)
        other.multihead_attn = torch_attention(mine.cross_attention)
        _copy_norm(mine.after_cross_attention.norm, other.norm2)
        _copy_linear(mine.feedforward.wide, other.linear1)
        _copy_linear(mine.feedforward.narrow, other.linear2)
        _copy_norm(mine.after_feedforward.norm, other.norm3)
    return theirs


def _layer_options(config: ModelConfig) -> dict[str, object]:
    return {
        "d_model": config.d_model,
        "nhead": config.num_heads,
        "dim_feedforward": config.width_ff,
        "dropout": 0.0,
        "activation": config.activation,
        "layer_norm_eps": config.norm_eps,
        "batch_first": True,
        "norm_first": config.norm == "pre",
        "dtype": torch.float64,
    }


def _last_norm(ours: LayerNorm | RMSNorm | None, config: ModelConfig) -> nn.LayerNorm | None:
    if ours is None:
        return None
    theirs = nn.LayerNorm(config.d_model, config.norm_eps, dtype=torch.float64)
    _copy_norm(ours, theirs)
    return theirs


def right_padding(lengths: list[int], longest: int) -> Tensor:
    """True at real positions, [B, T]: the rows' lengths, padded on the right."""
    return torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]
