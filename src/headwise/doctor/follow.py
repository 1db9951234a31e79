"""Where elements go: indices, not numbers, sent through operations that move them or treat each alone."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from headwise.doctor.graph import Op, Value, flat

FILLS = {"index_put", "index_put_"}  # scores[~keep] = -inf: what stays, stays where it is


def indices(value: Value) -> Tensor:
    """The elements of a value, numbered from 1 in its shape; 0 is for what comes from elsewhere."""
    return torch.arange(1, value.tensor.numel() + 1, device=value.tensor.device).view(value.tensor.shape)


def through(start: Value, path: tuple[Op, ...]) -> Tensor | None:
    """Send indices (from 1; 0 is 'from elsewhere') along a path of moves and element-wise operations."""
    at = indices(start)
    current = start
    for op in path:
        out = next((o for o in op.outputs if leads(o, path, op)), op.outputs[0])
        moved = follow(op, current, at, out)
        if moved is None:
            return None
        at, current = moved, out
    return at


def leads(out: Value, path: tuple[Op, ...], op: Op) -> bool:
    """Is this result of an operation on a path the one that goes on?"""
    place = path.index(op)
    return place + 1 >= len(path) or out in path[place + 1].inputs


def follow(op: Op, entered: Value, at: Tensor, out: Value) -> Tensor | None:
    """Where an operation puts the elements of one of its operands: indices shaped as its result."""
    if op.name == "update" or op.name == "_to_copy":
        return at if at.shape == out.tensor.shape else None
    if op.name in FILLS and entered is not op.inputs[0]:
        return None
    if op.pointwise or op.name.rstrip("_") in {"tril", "triu"} or op.name in FILLS:
        try:
            return at.expand(out.tensor.shape)
        except RuntimeError:
            return None
    if not op.moves:
        return None
    if op.name in {"view", "_unsafe_view", "_reshape_alias", "clone", "contiguous", "alias", "detach"}:
        return at.reshape(out.tensor.shape)

    def put(held: Any) -> Any:
        if isinstance(held, Value):
            if held is entered:
                return at.clone() if op.writes >= 0 else at
            joined = op.name in {"cat", "stack"}
            return torch.zeros_like(held.tensor, dtype=torch.long) if joined else held.tensor
        if isinstance(held, list | tuple):
            return [put(each) for each in cast("list[Any]", held)]
        return held

    args = [put(each) for each in op.args]
    if op.name == "constant_pad_nd":
        args = args[:2]
    try:
        result = op.func(*args, **{name: put(held) for name, held in op.kwargs.items() if name != "dtype"})
    except (RuntimeError, TypeError):
        return None
    return flat(result)[out.output]


def unfolded(weights_at: Tensor, v_at: Tensor, weight: Value) -> tuple[Tensor, Tensor]:
    """Heads that share keys, laid below one another for the product with the values, each by itself again."""
    rows, columns = (1, 1, *weight.shape)[-2:]
    folded, keys = weights_at.shape[1:]
    if keys != columns or folded == rows or folded % rows:
        return weights_at, v_at
    lies = weights_at[:, :, 0] // (rows * columns)  # rows of several heads may come in turns
    order = lies.argsort(dim=1, stable=True)
    apart = weights_at.gather(1, order.unsqueeze(-1).expand_as(weights_at)).reshape(-1, rows, columns)
    whole = apart // (rows * columns)  # which of the softmax's matrices each element lies in
    if bool((whole != whole[:, :1, :1]).any()):
        return weights_at, v_at
    return apart, v_at.repeat_interleave(folded // rows, 0)
