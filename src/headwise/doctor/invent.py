"""Inputs for a model that came without any: guessed from its own layers, tried, and said to be guessed."""

# pyright: reportUnknownMemberType=false
# torch leaves much without a type
from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.guard import told
from headwise.doctor.subject import Layout
from headwise.doctor.trial import Trial, tensors_of, try_call
from headwise.errors import DataError

# No two sizes alike, so that axes are told apart.
BATCH, LENGTHS = 3, ((11, 7), (7, 5), (5, 4), (16, 16), (64, 64))
_SPECIAL = 4  # ids below are often marks (padding, begin, end, unknown)
_TARGETS = ("target", "y", "out", "output", "outputs", "answer")
_NAMED_TARGETS = ("tgt", "trg", "dec")
_IMAGES = ("pixel_values", "image", "images", "img", "imgs", "pixels")
_IDS, _DECODER_IDS = "input_ids", "decoder_input_ids"


@dataclass(frozen=True)
class _Streams:
    """What to hand over, by parameter name (by_name: as keyword arguments); masks: what may go with it."""

    names: tuple[str, ...]
    by_name: bool = False
    masks: tuple[str, ...] = ()


def invent_inputs(
    model: nn.Module, layout: Layout | None = None, shown: str = "the model"
) -> tuple[Any, dict[str, object]]:
    """Inputs that the model takes, and what was assumed of them (inputs_from, pad_id).

    Token ids below the vocabulary of the embedding that they reach; floats as wide as the first layer where
    none is reached. A model that always fails after its embedding gets its ids all the same: the examination
    says why.
    Errors: DataError that asks for inputs, or for the order of axes, where guessing would be dishonest.
    """
    streams = _streams(model, shown)
    failed: list[str] = []
    reached: tuple[Any, dict[str, object]] | None = None
    takes_ids = False
    for lengths in [*LENGTHS, *_fixed_lengths(model)]:
        trial = _try_ids(model, streams, lengths, layout, [2] * len(streams.names))
        if trial.error is None and not trial.vocabularies:
            takes_ids = True
            break
        if trial.error is None:
            _check_layout(trial, layout, shown)
            return _tokens(model, streams, lengths, layout, trial)
        failed.append(f"token ids {_sizes(trial.inputs)} ({told(trial.error)})")
        if trial.vocabularies and reached is None:
            reached = _tokens(model, streams, lengths, layout, trial)
    if reached is not None:
        inputs, assumed = reached
        return inputs, assumed | {
            "inputs_from": f"{assumed['inputs_from']}; the model fails on every length tried"
        }
    for shapes in _float_shapes(model, streams, layout):
        generator = torch.Generator().manual_seed(0)
        trial = try_call(model, _packed(streams, [torch.randn(s, generator=generator) for s in shapes]))
        if trial.error is None:
            _check_layout(trial, layout, shown)
            sizes = " and ".join(str(list(shape)) for shape in shapes)
            return trial.inputs, {"inputs_from": f"random numbers {sizes}, made up"}
        failed.append(f"numbers {_sizes(trial.inputs)} ({told(trial.error)})")
    why = "it takes token ids without an embedding that would tell how many there are"
    if not takes_ids:
        why = f"tried {'; '.join(dict.fromkeys([failed[0], failed[-1]]))}"
    raise _ask(model, streams, why, shown)


def _streams(model: nn.Module, shown: str) -> _Streams:
    """The parameters of forward that want a tensor.

    Errors: DataError where one cannot be made up: a mask whose True may mean either, lengths, positions.
    """
    parameters = inspect.signature(model.forward).parameters
    config: Any = getattr(model, "config", None)
    required = tuple(p.name for p in parameters.values() if p.default is p.empty and _is_plain(p))
    if _IDS in parameters and set(required) <= {_IDS, _DECODER_IDS}:
        both = _DECODER_IDS in parameters and bool(getattr(config, "is_encoder_decoder", False))
        return _Streams((_IDS, _DECODER_IDS) if both else (_IDS,), by_name=True)
    if "pixel_values" in parameters and set(required) <= {"pixel_values"}:
        return _Streams(("pixel_values",), by_name=True)
    taking = [p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    masks = tuple(name for name in parameters if "mask" in name or name.endswith("_bias"))
    names = required or tuple(p.name for p in taking[:1]) or ("inputs",)
    streams = _Streams(names, masks=masks)
    wanted = [name for name in names if name in masks]
    if wanted:
        raise _ask(model, streams, f"True in {' and '.join(wanted)} may mean 'keep' or 'hide'", shown)
    if len(names) > 2 or (len(names) == 2 and not _is_target(names[1])):
        raise _ask(model, streams, f"{' and '.join(names[1:])} cannot be made up", shown)
    if len(names) == 2 and masks:
        raise _ask(model, streams, f"without {' and '.join(masks)} it may be another model", shown)
    return streams


def _is_plain(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _is_target(name: str) -> bool:
    name = name.lower()
    return name in _TARGETS or any(part in name for part in _NAMED_TARGETS)


def _try_ids(
    model: nn.Module, streams: _Streams, lengths: Sequence[int], layout: Layout | None, below: Sequence[int]
) -> Trial:
    generator = torch.Generator().manual_seed(0)
    padding = _padding(model)
    ids: list[Tensor] = []
    for length, size in zip(lengths, below, strict=False):
        least = _SPECIAL if size > 3 * _SPECIAL else 0
        drawn = torch.randint(least, size, (BATCH, length), generator=generator)
        if padding is not None and size > 2:
            drawn = drawn.masked_fill(drawn == padding, size - 1 if padding != size - 1 else size - 2)
        ids.append(drawn.T.contiguous() if layout == "time-major" else drawn)
    return try_call(model, _packed(streams, ids))


def _tokens(
    model: nn.Module, streams: _Streams, lengths: Sequence[int], layout: Layout | None, first: Trial
) -> tuple[Any, dict[str, object]]:
    """Ids over the whole vocabularies that the first trial has seen."""
    known = first.vocabularies
    below = [known.get(i, min(known.values())) for i in range(len(streams.names))]
    trial = _try_ids(model, streams, lengths, layout, below)
    if trial.error is not None and first.error is None:  # the table is not the vocabulary after all
        trial, below = first, [2] * len(below)
    ids = tensors_of(trial.inputs)
    named = [f" for {name}" if len(ids) > 1 else "" for name in streams.names]
    said = [f"{list(t.shape)} below {n}{name}" for t, n, name in zip(ids, below, named, strict=True)]
    assumed: dict[str, object] = {"inputs_from": f"token ids {' and '.join(said)}, made up"}
    padding = _padding(model)
    if padding is not None and not streams.masks and not streams.by_name:
        assumed["pad_id"] = padding
    return trial.inputs, assumed


def _padding(model: nn.Module) -> int | None:
    """The id that the model's own embeddings agree to be padding."""
    said = {
        m.padding_idx for m in model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None
    }
    return said.pop() if len(said) == 1 else None


def _fixed_lengths(model: nn.Module) -> list[tuple[int, int]]:
    """Lengths that a table of positions without slicing would ask for."""
    tables = [t for t in [*model.parameters(), *model.buffers()] if t.dim() in (2, 3)]
    sizes = dict.fromkeys(int(t.size(-2)) for t in tables if 2 <= t.size(-2) <= 512)
    return [(size, size) for size in sizes][:8]


def _float_shapes(
    model: nn.Module, streams: _Streams, layout: Layout | None
) -> Iterator[list[tuple[int, ...]]]:
    """Shapes worth trying: first images where a convolution or the parameter's name speaks of them."""
    layers = list(model.modules())
    convolutions = [m for m in layers if isinstance(m, nn.Conv2d)]
    widths = list(dict.fromkeys(m.in_features for m in layers if isinstance(m, nn.Linear)))[:4]
    count = len(streams.names)
    images = list(_image_shapes(model, convolutions[0] if convolutions else None, widths))
    vectors: list[list[tuple[int, ...]]] = []
    for width in [*dict.fromkeys(_model_widths(layers)), *widths]:
        for lengths in LENGTHS[:2]:
            sizes = [(n, BATCH) if layout == "time-major" else (BATCH, n) for n in lengths[:count]]
            vectors.append([(*size, width) for size in sizes])
    speaks = bool(convolutions) or streams.names[0].lower() in _IMAGES
    singles: list[list[tuple[int, ...]]] = [[shape] for shape in images] if count == 1 else []
    yield from [*singles, *vectors] if speaks else [*vectors, *singles]


def _model_widths(layers: Sequence[nn.Module]) -> list[int]:
    """What torch's own Transformer parts take."""
    widths: list[int] = [m.embed_dim for m in layers if isinstance(m, nn.MultiheadAttention)]
    return widths[:1]


def _image_shapes(
    model: nn.Module, convolution: nn.Conv2d | None, widths: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """Images that cut into as many patches as some table of the model has rows, then usual sizes."""
    if convolution is not None:
        patches = [(convolution.in_channels, max(int(s) for s in convolution.stride))]
    else:
        patches = [
            (channels, side)
            for width in widths
            for channels in (3, 1)
            if (side := math.isqrt(width // channels)) > 1 and side * side * channels == width
        ]
    rows = {int(t.size(-2)) for t in [*model.parameters(), *model.buffers()] if t.dim() in (2, 3)}
    grids = sorted(
        {math.isqrt(n - k) for n in rows for k in (0, 1, 2) if n > k and _is_square(n - k)} - {0, 1}
    )
    for channels, side in patches[:3]:
        sizes = [grid * side for grid in grids[:6]]
        for size in dict.fromkeys([*sizes, *(s for s in (32, 28, 224) if s % side == 0)]):
            yield BATCH, channels, size, size


def _is_square(number: int) -> bool:
    return math.isqrt(number) ** 2 == number


def _packed(streams: _Streams, tensors: Sequence[Tensor]) -> Any:
    return dict(zip(streams.names, tensors, strict=True)) if streams.by_name else tuple(tensors)


def _sizes(inputs: Any) -> str:
    return " and ".join(str(list(tensor.shape)) for tensor in tensors_of(inputs))


def _check_layout(trial: Trial, layout: Layout | None, shown: str) -> None:
    if layout is None and trial.is_batch_second:
        raise DataError(
            f"{shown}: nn.MultiheadAttention with batch_first=False gets what was made up as [batch, time] "
            "in that order; is the model's own input [time, batch]? say --layout time-major, or "
            "--layout batch-first to have it examined as it is"
        )


def _ask(model: nn.Module, streams: _Streams, why: str, shown: str) -> DataError:
    call = f"{type(model).__name__}.forward({', '.join(inspect.signature(model.forward).parameters)})"
    streamed = ", ".join(name for name in streams.names if name not in streams.masks)
    given = ", ".join([streamed, *(f"{mask}=..." for mask in streams.masks)])
    masks = f', "call": lambda model, {streamed}: model({given})' if streams.masks else ""
    return DataError(
        f"{shown}: no inputs could be made up for {call}: {why}; add a function: "
        f'def subject(): return {{"model": ..., "inputs": (...,){masks}}}'
    )
