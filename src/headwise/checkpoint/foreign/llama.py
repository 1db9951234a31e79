"""LLaMA, Mistral, Qwen2 and Qwen3: RMSNorm, rotary positions, a gated layer, shared keys and values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn

from headwise.checkpoint.foreign.layout import Entry, Layout, attention, joined, linear, norm, same
from headwise.checkpoint.foreign.options import Options, activation_name
from headwise.config import ModelConfig, RotaryConfig
from headwise.model.language_model import LanguageModel

_TYPES = "default, linear, yarn, llama3"


def read(options: Options) -> ModelConfig:
    """Their settings as ours, of all four."""
    family = options.text("model_type", "llama")
    d_model, num_heads = options.integer("hidden_size", 4096), options.integer("num_attention_heads", 32)
    divides = family != "llama" or num_heads < 1 or d_model % num_heads == 0
    options.need(
        divides, "num_attention_heads", f"a divisor of hidden_size {d_model}", "their code asks for it"
    )
    layers = options.integer("num_hidden_layers", 32)
    has_bias = family == "qwen2" or (family != "mistral" and options.flag("attention_bias", False))
    max_length = options.integer("max_position_embeddings", _LENGTHS[family])
    return ModelConfig(
        vocab_size=options.integer("vocab_size", 32000 if family in ("llama", "mistral") else 151936),
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=options.optional("num_key_value_heads", {"llama": None, "mistral": 8}.get(family, 32)),
        d_head=options.optional("head_dim", 128 if family == "qwen3" else None),
        d_ff=options.integer("intermediate_size", _WIDTHS[family]),
        num_encoder_layers=0,
        num_decoder_layers=layers,
        norm="pre",
        norm_kind="rms",
        norm_eps=options.number("rms_norm_eps", 1e-6),
        qk_norm=family == "qwen3",
        activation=options.activation("hidden_act", "silu"),
        gated=True,
        positions="rotary",
        max_length=max_length,
        rotary=_rotary(options, max_length),
        window=_window(options, family, layers),
        dropout=0.0,
        attention_dropout=options.number("attention_dropout", 0.0),
        attention_bias=has_bias,
        attention_output_bias=has_bias and family != "qwen2",
        feedforward_bias=family == "llama" and options.flag("mlp_bias", False),
        tie_embeddings=options.is_body or options.flag("tie_word_embeddings", False),
        scale_embedding=False,
        pad_id=options.pad_id,
    )


_LENGTHS = {"llama": 2048, "mistral": 131072, "qwen2": 32768, "qwen3": 32768}
_WIDTHS = {"llama": 11008, "mistral": 14336, "qwen2": 22016, "qwen3": 22016}


def _window(options: Options, family: str, layers: int) -> int | None:
    """How far back the layers look; all of them or none, since here they are alike."""
    if family == "llama":
        return None
    if family == "mistral":
        return options.optional("sliding_window", 4096)
    window = options.optional("sliding_window", 4096) if options.flag("use_sliding_window", False) else None
    kinds = options.words("layer_types", layers)
    first = options.integer("max_window_layers", 28)
    slide = sum(kind == "sliding_attention" for kind in kinds)
    if not kinds and window is not None:
        slide = max(layers - max(first, 0), 0)
    if 0 < slide < layers:
        name = "layer_types" if kinds else "max_window_layers"
        options.refuse(name, "the same for all layers", "headwise has one window for all")
    return window if slide else None


def _rotary(options: Options, max_length: int) -> RotaryConfig:
    """Their rope_parameters (rope_scaling and rope_theta before transformers 5)."""
    name = "rope_scaling" if options.section("rope_scaling") else "rope_parameters"
    given: dict[str, Any] = options.section(name)
    theta = options.number("rope_theta", 10_000.0)
    if any(isinstance(value, dict) for value in given.values()):
        options.refuse(name, "the same for all layers", "headwise turns all alike")
    rope = Options(f"{options.source}: {name}", given, options.architecture, refused=options.refused)
    kind = rope.text("rope_type", rope.text("type", "default"))
    turned = rope.number("partial_rotary_factor", options.number("partial_rotary_factor", 1.0))
    if turned != 1:
        options.refuse("partial_rotary_factor", "1", "these models turn every coordinate")
    base = rope.number("rope_theta", theta)
    if kind == "default":
        return RotaryConfig(base=base)
    if kind == "dynamic":
        rope.refuse(
            "rope_type",
            f"one of {_TYPES}",
            "dynamic scaling depends on each text's length; rope_type default is the same up to "
            f"max_position_embeddings ({max_length})",
        )
    if kind not in ("linear", "yarn", "llama3"):
        rope.refuse("rope_type" if "rope_type" in given else "type", f"one of {_TYPES}", "convert the model")
    factor = rope.number("factor", math.nan)
    if math.isnan(factor):
        rope.refuse("factor", "a number", f"{kind} needs it")
    if kind == "linear":
        return RotaryConfig(base=base, scaling="linear", factor=factor)
    length = rope.integer("original_max_position_embeddings", max_length)
    length = options.integer("original_max_position_embeddings", length)
    if kind == "llama3":
        return RotaryConfig(
            base=base,
            scaling="llama3",
            factor=factor,
            original_length=length,
            fast_turns=rope.number("high_freq_factor", 4.0),
            slow_turns=rope.number("low_freq_factor", 1.0),
        )
    rope.only("truncate", True, "headwise rounds the ends of the ramp, as YaRN's authors do")
    slow = rope.number("beta_slow", 1.0)
    least, name = 2 * math.pi * slow, "original_max_position_embeddings"
    rope.need(length > least, name, f"above {least:.1f}", "no pair turns once")
    return RotaryConfig(
        base=base,
        scaling="yarn",
        factor=factor,
        original_length=length,
        fast_turns=rope.number("beta_fast", 32.0),
        slow_turns=slow,
        attention_factor=_attention_factor(rope, factor),
    )


def _attention_factor(rope: Options, factor: float) -> float | None:
    """YaRN's factor of cosine and sine; DeepSeek's two numbers stand for a quotient."""
    if rope.values.get("attention_factor") is not None:
        return rope.number("attention_factor", 1.0)
    if not (rope.values.get("mscale") and rope.values.get("mscale_all_dim")):
        return None
    above, below = (
        0.1 * rope.number(name, 1.0) * math.log(max(factor, 1)) + 1 for name in ("mscale", "mscale_all_dim")
    )
    return above / below


def _rope(rotary: RotaryConfig) -> dict[str, object]:
    rope: dict[str, object] = {
        "rope_theta": rotary.base,
        "rope_type": rotary.scaling,
        "factor": rotary.factor,
    }
    match rotary.scaling:
        case "llama3":
            rope |= {
                "original_max_position_embeddings": rotary.original_length,
                "high_freq_factor": rotary.fast_turns,
                "low_freq_factor": rotary.slow_turns,
            }
        case "yarn":
            rope |= {
                "original_max_position_embeddings": rotary.original_length,
                "beta_fast": rotary.fast_turns,
                "beta_slow": rotary.slow_turns,
                "attention_factor": rotary.attention_factor,
            }
        case "linear":
            pass
        case _:  # "ntk" has no name there: what comes back then differs, and is refused
            return {"rope_theta": rotary.base, "rope_type": "default"}
    return {name: value for name, value in rope.items() if value is not None}


def write(family: str, config: ModelConfig) -> dict[str, object]:
    """Our settings as theirs."""
    kinds = "full" if config.window is None else "sliding"
    own: dict[str, object] = {}  # what not all of the four have
    if family in ("llama", "qwen3"):
        own["attention_bias"] = config.attention_bias
    if family == "llama":
        own["mlp_bias"] = config.feedforward_bias
    else:
        own["sliding_window"] = config.window
    if family.startswith("qwen"):
        own["use_sliding_window"] = config.window is not None
        own["layer_types"] = [f"{kinds}_attention"] * config.num_decoder_layers
    return {
        **own,
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.width_head,
        "intermediate_size": config.width_ff,
        "num_hidden_layers": config.num_decoder_layers,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": activation_name(config.activation),
        "max_position_embeddings": config.max_length,
        "rope_parameters": _rope(config.rotary),
        "rope_theta": config.rotary.base,  # for versions before 5
        "attention_dropout": config.attention_dropout,
        "tie_word_embeddings": config.ties_output,
    }


def entries(config: ModelConfig, kind: type[nn.Module]) -> Iterator[Entry]:
    """Their tensors and ours."""
    yield same("embedding.tokens.table.weight", "model.embed_tokens.weight")
    for n in range(config.num_decoder_layers):
        ours, theirs = f"decoder.blocks.{n}", f"model.layers.{n}"
        looks, thinks = f"{theirs}.self_attn", f"{theirs}.mlp"
        yield from norm(f"{ours}.after_self_attention.norm", f"{theirs}.input_layernorm", bias=False)
        names = (f"{looks}.{part}_proj" for part in "qkvo")
        yield from attention(config, f"{ours}.self_attention", names)
        if config.qk_norm:
            yield from norm(f"{ours}.self_attention.query_norm", f"{looks}.q_norm", bias=False)
            yield from norm(f"{ours}.self_attention.key_norm", f"{looks}.k_norm", bias=False)
        yield from norm(f"{ours}.after_feedforward.norm", f"{theirs}.post_attention_layernorm", bias=False)
        for part in ("weight", "bias") if config.feedforward_bias else ("weight",):
            halves = [f"{thinks}.gate_proj.{part}", f"{thinks}.up_proj.{part}"]
            yield joined(f"{ours}.feedforward.wide.{part}", halves, [config.width_ff] * 2)
        yield from linear(f"{ours}.feedforward.narrow", f"{thinks}.down_proj", bias=config.feedforward_bias)
    yield from norm("decoder.final_norm", "model.norm", bias=False)
    if not config.ties_output:
        yield same("output.weight", "lm_head.weight")


LAYOUTS = tuple(
    Layout(
        name.lower(),
        {f"{name}ForCausalLM": LanguageModel, f"{name}Model": LanguageModel},
        read,
        partial(write, name.lower()),
        entries,
        prefix="model.",
        ties=(("lm_head.weight", "model.embed_tokens.weight"),),
        ignored=(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
        tokenizer="Qwen2Tokenizer" if name == "Qwen2" else "",
    )
    for name in ("Llama", "Mistral", "Qwen2", "Qwen3")
)
