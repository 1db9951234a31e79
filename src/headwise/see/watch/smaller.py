"""A few rows of a batch, whatever a model is called with: the arguments cut along the axis of the rows.

Which axis that is is measured: the rows alone must give what they give within the whole batch. Rows are taken
apart from one another, so that the first positions of a batch whose first axis is time would not pass.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

ROWS = 2
LENGTH = 256  # positions that are looked at: attention of longer rows would take too long
NEAR = 2e-2  # of the largest number: bfloat16 rounds differently in another batch
PLAIN = (str, bytes, int, float, bool, complex, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Cut:
    """How arguments are made smaller: rows along `axis` (None: all of them), `length` positions (0: all)."""

    axis: int | None
    size: int = 0
    positions: int = 0
    length: int = 0

    def rows(self, *, is_again: bool = False) -> list[int]:
        """Which rows: the first and the last; is_again: those and the first one again, three in any case."""
        if is_again:
            return [0, self.size - 1, 0]
        return [place * (self.size - 1) // max(ROWS - 1, 1) for place in range(min(ROWS, self.size))]

    def __call__(self, tree: Any, *, is_again: bool = False) -> Any:
        """The smaller arguments; nothing in them shares memory with those given."""
        return mapped(tree, lambda tensor: self._smaller(tensor, is_again))

    def _smaller(self, tensor: Tensor, is_again: bool) -> Tensor:
        tensor = tensor.detach()
        axis = self.axis
        if axis is not None and tensor.dim() > axis and tensor.size(axis) == self.size:
            tensor = tensor.index_select(
                axis, torch.tensor(self.rows(is_again=is_again), device=tensor.device)
            )
        else:
            axis, tensor = None, tensor.clone()
        for each in range(tensor.dim()) if self.length else ():
            if each != axis and tensor.size(each) == self.positions:
                tensor = tensor.narrow(each, 0, self.length)
        return tensor.contiguous()


def cut_along(arguments: Any, axis: int | None, *, is_short: bool) -> Cut:
    """How these arguments are cut along an axis of rows; is_short: to LENGTH positions at most."""
    first = next((t for t in tensors(arguments) if t.dim()), None)
    if first is None or axis is None or first.dim() <= axis:
        return Cut(None)
    positions = first.size(1 - axis) if first.dim() > 1 else 0
    if is_short and positions > LENGTH:
        return Cut(axis, first.size(axis), positions, LENGTH)
    return Cut(axis, first.size(axis))


def agrees(cut: Cut, whole: Any, part: Any) -> bool:
    """Does what the rows gave alone equal their share of what the whole batch gave?

    A result without rows (a loss) says nothing: one of the results must have them.
    """
    for full, some in zip(tensors(whole), tensors(part), strict=False):
        if not full.is_floating_point() or full.dim() < 1 or cut.axis is None:
            continue
        rows = cut.rows()
        for axis in range(full.dim()):
            if full.size(axis) != cut.size or some.dim() != full.dim() or some.size(axis) != len(rows):
                continue
            mine = full.index_select(axis, torch.tensor(rows, device=full.device))
            if mine.shape != some.shape:
                continue
            size = float(mine.abs().amax()) if mine.numel() else 0.0
            if size == size and float((mine.float() - some.float()).abs().amax()) <= NEAR * max(size, 1e-6):
                return True
    return False


def mapped(tree: Any, to: Callable[[Tensor], Any]) -> Any:
    """The same structure with other tensors; other objects are copied, since a model may write to them."""
    if isinstance(tree, Tensor):
        return to(tree)
    if isinstance(tree, (*PLAIN, nn.Module)):
        return tree
    if isinstance(tree, (tuple, list)):
        kind = cast("Callable[..., Any]", type(cast("object", tree)))
        made = [mapped(each, to) for each in cast("list[Any]", tree)]
        return kind(*made) if hasattr(kind, "_fields") else kind(made)  # a named tuple
    if isinstance(tree, dict):
        copied = copy.copy(cast("dict[Any, Any]", tree))
        for name, each in list(copied.items()):
            copied[name] = mapped(each, to)
        return copied
    if callable(tree) and not vars_of(tree):
        return tree
    data: Any = getattr(tree, "data", None)
    if isinstance(data, dict):  # a BatchEncoding
        return mapped(data, to)
    return copy.deepcopy(tree)


def vars_of(value: Any) -> bool:
    """Has an object that can be called a state of its own? Classes and functions have none to write to."""
    return hasattr(value, "__dict__") and not isinstance(value, (type, types.FunctionType, types.MethodType))


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in a structure, in order."""
    found: list[Tensor] = []
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, dict):
        for each in cast("dict[Any, Any]", tree).values():
            found += tensors(each)
    elif isinstance(tree, (tuple, list)):
        for each in cast("list[Any]", tree):
            found += tensors(each)
    elif isinstance(getattr(tree, "data", None), dict):
        found += tensors(tree.data)
    return found
