"""What a forward pass leaves behind in a model, put back after each: counters, caches, running statistics.

Two runs are compared to see what one change of the input does; a model that counts its calls would differ
without any.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.doctor.untouched import same_bits

MOST_BYTES = 64 * 2**20  # a buffer larger than this is a table, and no pass writes to it
HOLDERS = (dict, list, set, deque)


class State:
    """The state of one model between its calls. Copies of its buffers are made once."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    @contextmanager
    def kept(self) -> Generator[None]:
        """Put back what the calls within change: attributes, what lists hold, and tensors but parameters."""
        holders = [held for m in self.model.modules() for held in _holders(m)]
        contents = [(held, copy.copy(held)) for held in holders]
        parameters = {id(p) for p in self.model.parameters()}
        tensors = [t for held in holders for t in _values(held) if isinstance(t, Tensor)]
        versions = [(t, t._version) for t in tensors if id(t) not in parameters and self._copied(t)]  # pyright: ignore[reportPrivateUsage]
        try:
            yield
        finally:
            for now, was in contents:
                _put_back(now, was)
            for tensor, version in versions:
                held = self._copies[id(tensor)][1]
                moved = tensor._version != version  # pyright: ignore[reportPrivateUsage]
                if moved or (self.model.training and not same_bits(tensor, held)):  # batch norm tells no one
                    with torch.no_grad():
                        tensor.copy_(held)

    def _copied(self, tensor: Tensor) -> bool:
        if tensor.is_inference() or tensor.numel() * tensor.element_size() > MOST_BYTES:
            return False
        if id(tensor) not in self._copies:
            self._copies[id(tensor)] = tensor, tensor.detach().clone()
        return True


def _holders(module: nn.Module) -> list[Any]:
    """A module's attributes, and those among them that hold other things: its buffers, a cache, a history."""
    own = vars(module)
    return [own, *(held for held in own.values() if type(held) in HOLDERS)]


def _values(holder: Any) -> Iterable[Any]:
    return cast("dict[str, Any]", holder).values() if isinstance(holder, dict) else holder


def _put_back(now: Any, was: Any) -> None:
    """Fill a holder with what it held, unless it holds just that."""
    mine, other = list(_values(now)), list(_values(was))
    alike = len(mine) == len(other) and all(a is b for a, b in zip(mine, other, strict=True))
    if alike and (not isinstance(now, dict) or list(cast("Any", now)) == list(was)):
        return
    now.clear()
    fill = cast("Any", now)
    fill.extend(was) if isinstance(now, (list, deque)) else fill.update(was)
