"""T5: pre-norm without biases, distances told apart by learned numbers, no scaling of the scores."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from headwise.checkpoint.foreign.layout import Entry, Layout, attention, joined, norm, same
from headwise.checkpoint.foreign.options import Options, activation_name
from headwise.config import ModelConfig
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.text_encoder import TextEncoder


def read(options: Options) -> ModelConfig:
    """Their settings as ours."""
    is_encoder = options.architecture == "T5EncoderModel"
    layers, dropout = options.integer("num_layers", 6), options.number("dropout_rate", 0.1)
    kind = options.text("feed_forward_proj", "relu")
    is_gated = kind.startswith("gated-")
    # "gated-gelu" has always meant the tanh form there
    act = "gelu_new" if kind == "gated-gelu" else kind.removeprefix("gated-")
    named = Options(options.source, {"feed_forward_proj": act}, options.architecture)
    # version 1.1 leaves the factor out; before transformers 5 that was told by tie_word_embeddings alone
    is_scaled = options.flag("scale_decoder_outputs", options.flag("tie_word_embeddings", True))
    return ModelConfig(
        vocab_size=options.integer("vocab_size", 32128),
        d_model=options.integer("d_model", 512),
        num_heads=options.integer("num_heads", 8),
        d_head=options.integer("d_kv", 64),
        d_ff=options.integer("d_ff", 2048),
        num_encoder_layers=layers,
        num_decoder_layers=0 if is_encoder else options.integer("num_decoder_layers", layers),
        norm="pre",
        norm_kind="rms",
        norm_eps=options.number("layer_norm_epsilon", 1e-6),
        activation=named.activation("feed_forward_proj", "relu"),
        gated=is_gated,
        positions="relative",
        max_length=options.integer("n_positions", 512),
        relative_buckets=options.integer("relative_attention_num_buckets", 32),
        relative_distance=options.integer("relative_attention_max_distance", 128),
        scale_attention=False,
        dropout=dropout,
        attention_dropout=dropout,
        feedforward_dropout=dropout,
        feedforward_bias=False,
        tie_output=False if "lm_head.weight" in options.names else None,
        scale_embedding=False,
        scale_output=is_scaled and not is_encoder,
        pad_id=options.pad_id if "pad_token_id" in options.values else 0,
    )


def write(config: ModelConfig) -> dict[str, object]:
    """Our settings as theirs."""
    act = activation_name(config.activation)
    kind = f"gated-{'gelu' if act == 'gelu_new' else act}" if config.gated else act
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "num_heads": config.num_heads,
        "d_kv": config.width_head,
        "d_ff": config.width_ff,
        "num_layers": config.num_encoder_layers,
        "num_decoder_layers": config.num_decoder_layers or config.num_encoder_layers,
        "layer_norm_epsilon": config.norm_eps,
        "feed_forward_proj": kind,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_distance,
        "n_positions": config.max_length,
        "dropout_rate": config.dropout,
        "scale_decoder_outputs": config.scale_output,
        "tie_word_embeddings": config.scale_output,  # what versions before 5 go by
        "is_encoder_decoder": config.num_decoder_layers > 0,
        "decoder_start_token_id": config.pad_id,
    }


def entries(config: ModelConfig, kind: type[nn.Module]) -> Iterator[Entry]:
    """Their tensors and ours."""
    if kind is TextEncoder:
        yield same("embedding.tokens.table.weight", "shared.weight")
    else:
        yield same("source_embedding.table.weight", "shared.weight")
    yield from _stack(config, "encoder", config.num_encoder_layers)
    if kind is not TextEncoder:
        yield from _stack(config, "decoder", config.num_decoder_layers)
        if not config.ties_output:
            yield same("output.weight", "lm_head.weight")


def _stack(config: ModelConfig, side: str, layers: int) -> Iterator[Entry]:
    first = f"{side}.block.0.layer.0.SelfAttention"
    yield same(f"{side}.distance_positions.bias.table", f"{first}.relative_attention_bias.weight")
    looks = [("self_attention", "SelfAttention"), ("cross_attention", "EncDecAttention")]
    for n in range(layers):
        ours, theirs, step = f"{side}.blocks.{n}", f"{side}.block.{n}.layer", 0
        for mine, name in looks if side == "decoder" else looks[:1]:
            names = (f"{theirs}.{step}.{name}.{part}" for part in "qkvo")
            yield from attention(config, f"{ours}.{mine}", names)
            yield from norm(f"{ours}.after_{mine}.norm", f"{theirs}.{step}.layer_norm", bias=False)
            step += 1
        thinks = f"{theirs}.{step}.DenseReluDense"
        if config.gated:
            halves = [f"{thinks}.wi_0.weight", f"{thinks}.wi_1.weight"]
            yield joined(f"{ours}.feedforward.wide.weight", halves, [config.width_ff] * 2)
        else:
            yield same(f"{ours}.feedforward.wide.weight", f"{thinks}.wi.weight")
        yield same(f"{ours}.feedforward.narrow.weight", f"{thinks}.wo.weight")
        yield from norm(f"{ours}.after_feedforward.norm", f"{theirs}.{step}.layer_norm", bias=False)
    yield from norm(f"{side}.final_norm", f"{side}.final_layer_norm", bias=False)


LAYOUTS = (
    Layout(
        "t5",
        {
            "T5ForConditionalGeneration": EncoderDecoder,
            "T5Model": EncoderDecoder,
            "T5EncoderModel": TextEncoder,
        },
        read,
        write,
        entries,
        ties=(
            ("encoder.embed_tokens.weight", "shared.weight"),
            ("decoder.embed_tokens.weight", "shared.weight"),
        ),
        ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    ),
)
