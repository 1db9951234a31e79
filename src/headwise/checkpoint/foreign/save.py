"""A model of ours as a directory that the transformers library loads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from headwise.checkpoint.foreign.files import CONFIG, ONE_FILE, TOKENIZER
from headwise.checkpoint.foreign.layout import Entry, Layout, layouts
from headwise.checkpoint.foreign.load import Model
from headwise.checkpoint.foreign.options import Options
from headwise.config import ModelConfig
from headwise.data.text_tokenizer import TextTokenizer
from headwise.errors import ConfigError
from headwise.files import write_atomically, write_text_atomically

# What only training sees, and what their settings say in other words.
_UNSEEN = {
    *("dropout", "attention_dropout", "feedforward_dropout", "output_gain"),
    *("num_kv_heads", "d_head", "d_ff", "attention_output_bias", "tie_output"),
}


def save(model: Model, path: str | Path, layout: str, tokenizer: TextTokenizer | None = None) -> None:
    """Write config.json, model.safetensors and tokenizer.json, each atomically.

    layout: whose form the files have: gpt2, llama, bert, ...
    Errors: ConfigError with every setting that the layout cannot express; StorageError as write_atomically.
    Law: `load` gives the model back, and transformers' from_pretrained one with the same logits.
    """
    chosen = _chosen(layout, model)
    config, kind = model.config, type(model)
    entries = list(chosen.entries(config, kind))
    architecture = next(name for name, ours in chosen.heads.items() if ours is kind)
    settings: dict[str, Any] = {"model_type": chosen.name, "architectures": [architecture]}
    settings |= {**chosen.write(config), "pad_token_id": config.pad_id}
    names = frozenset(name for entry in entries for name in entry.theirs)
    reasons = list(_differences(config, chosen, Options(layout, settings, architecture, names)))
    own = {name: parameter.detach() for name, parameter in model.named_parameters()}
    reasons = reasons or list(_not_by_formula(entries, own))
    if reasons:
        raise ConfigError(f"the {layout} layout cannot express this model: {'; '.join(reasons)}")
    dtype = next(iter(own.values())).dtype
    settings = {**_marks(tokenizer), **settings, "dtype": str(dtype).removeprefix("torch.")}
    tensors = dict(_tensors(entries, own))
    folder = Path(path)
    write_atomically(
        folder / ONE_FILE, lambda beside: beside.write_bytes(to_bytes(tensors, {"format": "pt"}))
    )
    if tokenizer is not None:
        tokenizer.save(folder / TOKENIZER)
    write_text_atomically(folder / CONFIG, json.dumps(settings, indent=2, sort_keys=True) + "\n")


def _marks(tokenizer: TextTokenizer | None) -> dict[str, int | None]:
    """Ids that only their `generate` needs; told even if nobody knows them: their defaults fit few models."""
    begin, end = (None, None) if tokenizer is None else (tokenizer.begin_id, tokenizer.end_id)
    return {
        "bos_token_id": begin,
        "eos_token_id": end,
        "decoder_start_token_id": end,  # BART's; the others begin with padding
        "forced_eos_token_id": end,
    }


def _chosen(name: str, model: nn.Module) -> Layout:
    known = layouts()
    if name not in known:
        raise ConfigError(f"layout must be one of {', '.join(known)}: got {name!r}")
    if type(model) not in known[name].heads.values():
        kinds = " or ".join(sorted({kind.__name__ for kind in known[name].heads.values()}))
        fitting = [other for other, layout in known.items() if type(model) in layout.heads.values()]
        raise ConfigError(
            f"the {name} layout holds a {kinds}: got a {type(model).__name__}; "
            f"layouts for that: {', '.join(fitting) or 'none'}"
        )
    return known[name]


def _differences(config: ModelConfig, layout: Layout, options: Options) -> Iterator[str]:
    """Every setting that comes back from theirs as another one, or that their code refuses."""
    noted: list[str] = []
    back = layout.read(replace(options, refused=noted))
    yield from noted
    mine, theirs, unused = _told(config), _told(back), _unused(config, options)
    for name, value in mine.items():
        if name not in unused and theirs[name] != value:
            yield f"{name}: the model has {value}, {layout.name} {theirs[name]}"


def _told(config: ModelConfig) -> dict[str, object]:
    """The settings that decide what a model computes, each in one spelling."""
    told: dict[str, object] = {name: value for name, value in vars(config).items() if name not in _UNSEEN}
    return told | {
        "num_kv_heads": config.key_value_heads,
        "d_head": config.width_head,
        "d_ff": config.width_ff,
        "attention_output_bias": config.has_attention_output_bias,
        "tie_output": config.ties_output,
    }


def _unused(config: ModelConfig, options: Options) -> set[str]:
    """The settings that this model does not look at."""
    has_source = config.num_encoder_layers > 0 and config.num_decoder_layers > 0
    is_image = "Image" in options.architecture
    is_classifier = "Classification" in options.architecture
    has_output = config.num_decoder_layers > 0 or "MaskedLM" in options.architecture
    when = {
        ("rotary",): config.positions != "rotary",
        ("relative_buckets", "relative_distance"): config.positions != "relative",
        ("max_length",): config.positions in ("alibi", "none"),
        ("window", "scale_output"): config.num_decoder_layers == 0,
        ("pooling", "num_classes"): not is_classifier,
        ("pooling_activation",): not is_classifier or is_image,
        ("patches",): not is_image,
        ("vocab_size", "pad_id", "scale_embedding"): is_image,
        ("num_segments",): is_image or has_source,
        ("tie_embeddings",): not has_source,
        ("tie_output", "output_bias"): not has_output,
    }
    return {name for names, is_so in when.items() if is_so for name in names}


def _not_by_formula(entries: list[Entry], own: dict[str, Tensor]) -> Iterator[str]:
    """Tables that their code computes and a file need not hold: another one would be lost."""
    for entry in entries:
        if entry.formula is None:
            continue
        off = (own[entry.ours].double() - entry.formula().to(own[entry.ours]).double()).abs().max().item()
        if off > 1e-6:
            yield f"{entry.ours}: differs from the table that their code computes by {off:.2g}"


def _tensors(entries: list[Entry], own: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for entry in entries:
        if entry.formula is None:
            for name, tensor in zip(entry.theirs, entry.to_theirs(own[entry.ours]), strict=True):
                yield name, tensor.contiguous()
