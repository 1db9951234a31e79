"""A model of ours as a directory that the transformers library loads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from headwise.checkpoint.foreign.files import CONFIG, ONE_FILE, TOKENIZER, TOKENIZER_CONFIG, read_object
from headwise.checkpoint.foreign.layout import Entry, Layout, layouts
from headwise.checkpoint.foreign.load import Model, Pretrained
from headwise.checkpoint.foreign.options import Options, labels
from headwise.config import ModelConfig
from headwise.data.text_tokenizer import TextTokenizer
from headwise.errors import ConfigError
from headwise.files import write_atomically, write_text_atomically

# What only training sees, and what their settings say in other words.
_UNSEEN = {
    *("dropout", "attention_dropout", "feedforward_dropout", "output_gain"),
    *("num_kv_heads", "d_head", "d_ff", "attention_output_bias", "tie_output"),
}


def save(
    model: Model | Pretrained, path: str | Path, layout: str, tokenizer: TextTokenizer | None = None
) -> None:
    """Write config.json, model.safetensors and the tokenizer's two files, each atomically.

    model: or what `load` gave, with its tokenizer, its classes' names and the ids of its answers' ends.
    layout: whose form the files have: gpt2, llama, bert, ...
    tokenizer: in a form in which transformers' AutoTokenizer gives the same ids; a warning says where it
        cannot.
    Other files of the directory stay.
    Errors: ConfigError with every setting and every tensor that the layout cannot express, for a run in
    place of its model, and for a tokenizer with more tokens than the model has; StorageError as
    write_atomically.
    Law: `load` gives the model back, and transformers' from_pretrained one with the same logits.
    """
    _refuse_runs(model)
    given = model if isinstance(model, Pretrained) else Pretrained(model, None, layout)
    model, tokenizer = given.model, tokenizer or given.tokenizer
    chosen = _chosen(layout, model)
    config, kind = model.config, type(model)
    entries = list(chosen.entries(config, kind))
    architecture = next(name for name, ours in chosen.heads.items() if ours is kind)
    settings: dict[str, Any] = {"model_type": chosen.name, "architectures": [architecture]}
    settings |= {**chosen.write(config), "pad_token_id": config.pad_id}
    if given.classes:
        settings |= labels(config.num_classes, given.classes)
    names = frozenset(name for entry in entries for name in entry.theirs)
    reasons = list(_differences(config, chosen, Options(layout, settings, architecture, names)))
    own = {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False)}
    reasons += _strange(model, own)
    reasons = reasons or list(_not_by_formula(entries, own))
    if reasons:
        raise ConfigError(f"the {layout} layout cannot express this model: {'; '.join(reasons)}")
    if tokenizer is not None and config.vocab_size and tokenizer.vocab_size > config.vocab_size:
        raise ConfigError(
            f"the tokenizer must have at most the model's {config.vocab_size} tokens: got "
            f"{tokenizer.vocab_size}; save the one that the model was trained with"
        )
    dtype = next(iter(own.values())).dtype
    settings = {**_marks(tokenizer, given.end_ids), **settings, "dtype": str(dtype).removeprefix("torch.")}
    if given.start_id is not None:
        settings["decoder_start_token_id"] = given.start_id
    tensors = dict(_tensors(entries, own))
    folder = Path(path)
    write_atomically(
        folder / ONE_FILE, lambda beside: beside.write_bytes(to_bytes(tensors, {"format": "pt"}))
    )
    if tokenizer is not None:
        tokenizer.save(folder / TOKENIZER)
        has_added = bool(read_object(folder / TOKENIZER).get("added_tokens"))
        _write(folder / TOKENIZER_CONFIG, _tokenizer_config(tokenizer, has_added))
        if chosen.tokenizer and (given.layout != layout or tokenizer is not given.tokenizer):
            warnings.warn(
                f"AutoTokenizer takes the tokenizer of every {layout} directory for a {chosen.tokenizer}: "
                f"for the ids of this one use PreTrainedTokenizerFast.from_pretrained({str(folder)!r})",
                stacklevel=2,
            )
    _write(folder / CONFIG, settings)


def _refuse_runs(model: object) -> None:
    """What `load_run` gives is no model, but has one."""
    if not isinstance(model, nn.Module | Pretrained) and isinstance(getattr(model, "model", None), nn.Module):
        raise ConfigError(
            f"save takes a model, or what load gave: got a {type(model).__name__}; pass its model: run.model"
        )


def _write(path: Path, content: Mapping[str, object]) -> None:
    write_text_atomically(path, json.dumps(content, indent=2, sort_keys=True) + "\n")


def _marks(tokenizer: TextTokenizer | None, ends: Sequence[int]) -> dict[str, object]:
    """Ids that only their `generate` needs; told even if nobody knows them: their defaults fit few models."""
    if tokenizer is not None and tokenizer.end_id is not None:
        ends = ends or [tokenizer.end_id]
    return {
        "bos_token_id": None if tokenizer is None else tokenizer.begin_id,
        "eos_token_id": list(ends) if len(ends) > 1 else next(iter(ends), None),
        "decoder_start_token_id": next(iter(ends), None),  # BART's; the others begin with padding
        "forced_eos_token_id": next(iter(ends), None),
    }


def _tokenizer_config(tokenizer: TextTokenizer, has_added: bool) -> dict[str, object]:
    """What AutoTokenizer goes by: without it, it takes tokenizer.json for one of the layout's family.

    has_added: whether a mark that stands in a text is the mark, not letters.
    """
    marks = {
        "pad_token": tokenizer.pad_id,
        "bos_token": tokenizer.begin_id,
        "eos_token": tokenizer.end_id,
        "mask_token": tokenizer.mask_id,
        "unk_token": tokenizer.unk_id,
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",  # tokenizer.json as it is
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": not has_added,
        **{name: tokenizer.names([index])[0] for name, index in marks.items() if index is not None},
    }


def _strange(model: Model, own: Mapping[str, Tensor]) -> Iterator[str]:
    """Every parameter that is not as the model's own configuration has it: it would be lost, or not fit."""
    with torch.device("meta"):
        plain = dict(type(model)(model.config).named_parameters(remove_duplicate=False))
    for name, tensor in own.items():
        if name not in plain:
            yield f"{name}: not in its configuration"
        elif tensor.shape != plain[name].shape:
            yield f"{name}: the model has {list(tensor.shape)}, its configuration {list(plain[name].shape)}"
        elif tensor.is_meta:
            yield f"{name}: on the meta device, without numbers"
    first: dict[int, str] = {}
    for name, parameter in plain.items():
        usual = first.setdefault(id(parameter), name)
        if name not in own:
            yield f"{name}: missing, its configuration has {list(parameter.shape)}"
        elif usual in own and own[usual] is not own[name] and not _is_equal(own[usual], own[name]):
            yield f"{name}: not equal to {usual}, to which its configuration ties it"


def _is_equal(one: Tensor, other: Tensor) -> bool:
    return one.is_meta or one.data_ptr() == other.data_ptr() or torch.equal(one, other)


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
    written: set[int] = set()
    for entry in entries:
        if entry.formula is None:
            for name, tensor in zip(entry.theirs, entry.to_theirs(own[entry.ours]), strict=True):
                tensor = tensor.contiguous()
                # the format has no two names of one memory
                yield name, tensor.clone() if tensor.data_ptr() in written else tensor
                written.add(tensor.data_ptr())
