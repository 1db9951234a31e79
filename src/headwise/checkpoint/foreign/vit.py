"""ViT: a pre-norm encoder over patches, with a class token in front."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from torch import nn

from headwise.checkpoint.foreign.layout import Entry, Layout, attention, linear, norm, reshaped, same
from headwise.checkpoint.foreign.options import Options, activation_name, labels
from headwise.config import ModelConfig, PatchConfig
from headwise.model.vision import ImageClassifier


def read(options: Options) -> ModelConfig:
    """Their settings as ours."""
    height, width = _sides(options, "image_size", 224)
    size, other = _sides(options, "patch_size", 16)
    if size != other:
        options.refuse("patch_size", "a square", "headwise cuts square patches")
    patches = PatchConfig(height, width, size, options.integer("num_channels", 3))
    has_bias = options.flag("qkv_bias", True)
    return ModelConfig(
        d_model=options.integer("hidden_size", 768),
        num_heads=options.integer("num_attention_heads", 12),
        d_ff=options.integer("intermediate_size", 3072),
        num_encoder_layers=options.integer("num_hidden_layers", 12),
        num_decoder_layers=0,
        norm="pre",
        norm_eps=options.number("layer_norm_eps", 1e-12),
        activation=options.activation("hidden_act", "gelu"),
        positions="learned",
        max_length=patches.count + 1,
        dropout=options.number("hidden_dropout_prob", 0.0),
        attention_dropout=options.number("attention_probs_dropout_prob", 0.0),
        attention_bias=has_bias,
        attention_output_bias=True,
        num_classes=options.num_classes,
        patches=patches,
    )


def _sides(options: Options, name: str, default: int) -> tuple[int, int]:
    """A number for both sides, or one for each."""
    given = options.values.get(name)
    if isinstance(given, list):
        sides = cast("list[Any]", given)
        if len(sides) != 2 or any(type(side) is not int for side in sides):
            options.refuse(name, "one whole number or two")
        return sides[0], sides[1]
    side = options.integer(name, default)
    return side, side


def write(config: ModelConfig) -> dict[str, object]:
    """Our settings as theirs."""
    return {
        "hidden_size": config.d_model,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.width_ff,
        "num_hidden_layers": config.num_encoder_layers,
        "layer_norm_eps": config.norm_eps,
        "hidden_act": activation_name(config.activation),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "qkv_bias": config.attention_bias,
        "image_size": [config.patches.height, config.patches.width],
        "patch_size": config.patches.size,
        "num_channels": config.patches.channels,
        **labels(config.num_classes),
    }


def entries(config: ModelConfig, kind: type[nn.Module]) -> Iterator[Entry]:
    """Their tensors and ours; their convolution with a stride of its own width is our product."""
    width, patches, there = config.d_model, config.patches, "vit.embeddings"
    pixels = (patches.channels, patches.size, patches.size)
    yield reshaped(
        "embedding.project.weight",
        f"{there}.patch_embeddings.projection.weight",
        (width, patches.channels * patches.size**2),
        (width, *pixels),
    )
    yield same("embedding.project.bias", f"{there}.patch_embeddings.projection.bias")
    yield reshaped("embedding.class_token", f"{there}.cls_token", (width,), (1, 1, width))
    table = (patches.count + 1, width)
    yield reshaped("embedding.positions.table", f"{there}.position_embeddings", table, (1, *table))
    for n in range(config.num_encoder_layers):
        ours, theirs = f"encoder.blocks.{n}", f"vit.encoder.layer.{n}"
        yield from norm(f"{ours}.after_self_attention.norm", f"{theirs}.layernorm_before")
        names = [f"{theirs}.attention.attention.{part}" for part in ("query", "key", "value")]
        yield from attention(config, f"{ours}.self_attention", [*names, f"{theirs}.attention.output.dense"])
        yield from norm(f"{ours}.after_feedforward.norm", f"{theirs}.layernorm_after")
        yield from linear(f"{ours}.feedforward.wide", f"{theirs}.intermediate.dense")
        yield from linear(f"{ours}.feedforward.narrow", f"{theirs}.output.dense")
    yield from norm("encoder.final_norm", "vit.layernorm")
    yield from linear("output", "classifier")


LAYOUTS = (
    Layout(
        "vit",
        {"ViTForImageClassification": ImageClassifier},
        read,
        write,
        entries,
        prefix="vit.",
        ignored=(r"vit\.embeddings\.mask_token", r"vit\.pooler\.dense\.(weight|bias)"),
    ),
)
