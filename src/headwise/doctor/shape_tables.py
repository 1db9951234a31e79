"""Why a table or a mask does not fit a sequence: ids beyond it, too few rows, axes that do not line up."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from headwise.doctor.probe import Probe
from headwise.doctor.shapes_told import Failure
from headwise.doctor.trace import Op, Value

LOOKUPS = {"embedding", "index", "index_select", "gather", "_unsafe_index"}


@dataclass(frozen=True)
class Cause:
    """The likely mistake in one sentence, and the way out."""

    why: str
    fix: str
    related: tuple[str, ...] = ()  # paths of modules whose constructors take part


def of_lookup(probe: Probe, failure: Failure) -> Cause | None:
    op = failure.op
    if "num_classes" in failure.message:
        return Cause(
            "an id is as large as the number of classes, or larger",
            "Give one_hot the size of the vocabulary.",
        )
    if op is None or op.name not in LOOKUPS or "out of" not in failure.message:
        return None
    table, ids = _lookup(op)
    if table is None or ids is None or not ids.tensor.numel():
        return None
    rows = table.shape[_dimension(op, failure.message)]
    name = table.name.partition(" ")[2] or "the table"
    held = ids.tensor
    wrong = (held >= rows) | (held < (0 if op.name == "embedding" else -rows))
    if not bool(wrong.any()):
        return None
    at = [int(x) for x in wrong.nonzero()[0]]
    number = int(held[wrong][0])
    count = int(wrong.sum())
    axes = failure.names.axes(tuple(held.shape))
    spot = ", ".join(
        f"{'row' if a == 'batch' else 'position' if 'time' in a else a or 'index'} {i}"
        for a, i in zip(axes, at, strict=True)
    )
    owner = (name.rpartition(".")[0],) if "." in name else ()
    if ids.sources and not _is_counted(ids):
        if number < 0:
            return Cause(
                f"the ids hold {number} at {spot}, and no table has such a row: the ids may be labels "
                f"({number} marks what "
                "the loss ignores)", "Give the model its input ids, not the labels.", owner,
            )  # fmt: skip
        return Cause(
            f"{name} has {rows} rows, so ids go to {rows - 1}: the ids hold {number} at {spot}"
            f"{f', and {count - 1} more as large' if count > 1 else ''}; the largest is {int(held.max())}",
            f"Make the table for {int(held.max()) + 1} ids or more (special tokens included), or use "
            "the tokenizer it was made for.",
            owner,
        )
    return Cause(
        f"{name} has {rows} rows, and position {number} is asked for: the sequence is longer than the "
        "table of positions",
        f"Cut sequences to {rows} positions, or make the table longer.", owner,
    )  # fmt: skip


def _dimension(op: Op, message: str) -> int:
    found = re.search(r"out of bounds for dimension (\d+)", message)
    place = int(found[1]) if found else 0
    return place if place < len(op.inputs[0].shape) else 0


def _lookup(op: Op) -> tuple[Value | None, Value | None]:
    if len(op.inputs) < 2:
        return None, None
    whole = [v for v in op.inputs[1:] if not v.tensor.is_floating_point() and v.tensor.dtype != torch.bool]
    return op.inputs[0], next(iter(whole), None)


def _is_counted(ids: Value) -> bool:
    """Were these ids counted (arange, cumsum) rather than read?"""
    todo, seen = [ids], set[Value]()
    while todo:
        value = todo.pop()
        if value in seen or value.op is None:
            continue
        seen.add(value)
        if value.op.name in {"arange", "cumsum", "linspace"}:
            return True
        todo.extend(value.op.inputs)
    return False


def of_mask(probe: Probe, failure: Failure) -> Cause | None:
    """A mask that does not line up with the scores [batch, heads, time, time]."""
    op = failure.op
    if op is None or op.name.rstrip("_") not in {
        "masked_fill",
        "where",
        "add",
        "mul",
        "sub",
        "bitwise_or",
        "bitwise_and",
    }:
        return None
    tensors = [v for v in op.inputs if v.tensor.dim() >= 2]
    scores = next(
        (v for v in tensors if v.tensor.is_floating_point() and v.trained and v.tensor.dim() >= 3), None
    )
    mask = next((v for v in tensors if v is not scores and not v.trained), None)
    if scores is None or mask is None or "encod" in failure.message:
        return None
    names, shape, wide = failure.names, mask.shape, scores.shape
    axes = names.axes(shape)
    told = f"[{', '.join(f'{a} {n}'.strip() for a, n in zip(axes, shape, strict=True))}]"
    if len(shape) == 2 and shape[0] == names.batch and len(wide) == 4 and shape[0] != wide[-2]:
        return Cause(
            f"the mask {told} lines up with the last axes of the scores, so batch rows meet query positions",
            "Give the padding mask its missing axes: mask[:, None, None, :] for scores [batch, heads, "
            "time, time].",
        )
    if len(shape) == 2 and shape[0] == names.batch and len(wide) == 3:
        return Cause(
            f"the mask {told} has no axis of its own for the queries (or the features)",
            "Add the missing axis: mask[:, None, :] for scores [batch, time, time], mask[:, :, None] "
            "for features.",
        )
    if len(shape) == 3 and len(wide) == 4 and shape[0] == names.batch and shape[-1] == wide[-1]:
        return Cause(f"the mask {told} has no axis for the heads", "Add it: mask[:, None, :, :].")
    if (
        len(shape) >= 2
        and len(wide) >= 3
        and wide[-1] != shape[-1]
        and shape[-1] == shape[-2]
        and wide[-1] == wide[-2]
    ):
        return Cause(
            f"the mask was made for {shape[-1]} positions, and there are {wide[-1]}",
            f"Cut it to the sequence, mask[..., :{wide[-1]}, :{wide[-1]}], or make it in forward from "
            "the length.",
        )
    if len(wide) >= 3 and len(shape) >= 2 and shape[-1] == wide[-2] and shape[-2] in {1, wide[-1]}:
        return Cause(
            "the mask is made for the other sequence (queries and keys are swapped)",
            "A mask is [queries, keys]: in cross-attention keys are the source's positions.",
        )
    return None


def of_positions(probe: Probe, failure: Failure) -> Cause | None:
    """A sum of the stream and a table of another length."""
    op = failure.op
    if op is None or op.name.rstrip("_") not in {"add", "mul"}:
        return None
    pair = [v for v in op.inputs if v.tensor.dim() >= 2]
    if len(pair) < 2:
        return None
    stream = next((v for v in pair if v.sources), None)
    table = next((v for v in pair if not v.sources), None)
    if stream is None or table is None or stream.shape[-1] != table.shape[-1]:
        if stream is not None and table is not None and stream.shape[-1] != table.shape[-1]:
            return Cause(
                f"the widths differ: {stream.shape[-1]} and {table.shape[-1]}",
                "Make both tables with the same width, d_model.",
            )
        return None
    length = failure.names.lengths
    here = next((n for n in stream.shape if n in length), stream.shape[-2])
    if table.shape[-2] < here:
        return Cause(
            f"the table of positions has {table.shape[-2]} rows, and the sequence {here} positions",
            f"Cut sequences to {table.shape[-2]} positions, or make the table longer.",
        )
    return Cause(
        f"the table of positions has {table.shape[-2]} rows, and {here} positions are to be summed with it",
        f"Cut the table to the sequence: table[:{here}].",
    )
