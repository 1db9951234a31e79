"""GPT-2: pre-norm, learned positions, and matrices that multiply from the other side."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from headwise.checkpoint.foreign.layout import Entry, Layout, norm, same, transposed
from headwise.checkpoint.foreign.options import Options, activation_name
from headwise.config import ModelConfig
from headwise.model.language_model import LanguageModel


def read(options: Options) -> ModelConfig:
    """Their settings as ours. Dropout on the embeddings (embd_pdrop) has no setting of its own here."""
    options.only("scale_attn_by_inverse_layer_idx", False, "headwise scales all layers alike")
    options.only("add_cross_attention", False, "a language model has no source to look at")
    return ModelConfig(
        vocab_size=options.integer("vocab_size", 50257),
        d_model=options.integer("n_embd", 768),
        num_heads=options.integer("n_head", 12),
        d_ff=options.optional("n_inner"),
        num_encoder_layers=0,
        num_decoder_layers=options.integer("n_layer", 12),
        norm="pre",
        norm_eps=options.number("layer_norm_epsilon", 1e-5),
        activation=options.activation("activation_function", "gelu_new"),
        positions="learned",
        max_length=options.integer("n_positions", 1024),
        scale_attention=options.flag("scale_attn_weights", True),
        dropout=options.number("resid_pdrop", 0.1),
        attention_dropout=options.number("attn_pdrop", 0.1),
        attention_bias=True,
        tie_embeddings=options.is_body or options.flag("tie_word_embeddings", True),
        scale_embedding=False,
        pad_id=options.pad_id,
    )


def write(config: ModelConfig) -> dict[str, object]:
    """Our settings as theirs."""
    return {
        "vocab_size": config.vocab_size,
        "n_embd": config.d_model,
        "n_head": config.num_heads,
        "n_inner": config.width_ff,
        "n_layer": config.num_decoder_layers,
        "n_positions": config.max_length,
        "layer_norm_epsilon": config.norm_eps,
        "activation_function": activation_name(config.activation),
        "scale_attn_weights": config.scale_attention,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "tie_word_embeddings": config.ties_output,
    }


def entries(config: ModelConfig, kind: type[nn.Module]) -> Iterator[Entry]:
    """Their tensors and ours."""
    yield same("embedding.tokens.table.weight", "transformer.wte.weight")
    yield same("embedding.positions.table", "transformer.wpe.weight")
    for n in range(config.num_decoder_layers):
        ours, theirs = f"decoder.blocks.{n}", f"transformer.h.{n}"
        yield from norm(f"{ours}.after_self_attention.norm", f"{theirs}.ln_1")
        yield from norm(f"{ours}.after_feedforward.norm", f"{theirs}.ln_2")
        for mine, name in (
            ("self_attention.query_key_value", "attn.c_attn"),
            ("self_attention.output", "attn.c_proj"),
            ("feedforward.wide", "mlp.c_fc"),
            ("feedforward.narrow", "mlp.c_proj"),
        ):
            yield transposed(f"{ours}.{mine}.weight", f"{theirs}.{name}.weight")
            yield same(f"{ours}.{mine}.bias", f"{theirs}.{name}.bias")
    yield from norm("decoder.final_norm", "transformer.ln_f")
    if not config.ties_output:
        yield same("output.weight", "lm_head.weight")


LAYOUTS = (
    Layout(
        "gpt2",
        {"GPT2LMHeadModel": LanguageModel, "GPT2Model": LanguageModel},
        read,
        write,
        entries,
        prefix="transformer.",
        ties=(("lm_head.weight", "transformer.wte.weight"),),
        ignored=(r"transformer\.h\.\d+\.attn\.(masked_)?bias",),  # the causal mask
    ),
)
