"""Which optimizer's steps count where there are several, and which parameters all of them hold."""

from __future__ import annotations

import weakref
from typing import Any

from torch.optim import Optimizer

CERTAIN = 50  # steps, before which a parameter that no optimizer moves may wait for its optimizer
PERIODS = 20  # times the longest wait of an optimizer seen so far, before the same


class Leader:
    """The optimizer whose steps count: the first, until another takes two steps between two of its own.

    So of two that take turns one counts, of a critic that is trained five times as often the critic, and
    an optimizer that is made anew goes on where the old one was.
    """

    def __init__(self) -> None:
        self.optimizer: Any = None
        self._since: dict[int, int] = {}  # steps of others since its last one, by their ids
        self._last: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._taken = 0
        self._longest = 1

    def leads(self, optimizer: Any) -> bool:
        """Does this step of an optimizer count? (None: of a loop without one: always.) Asked before it."""
        if optimizer is None:
            return True
        if optimizer is self.optimizer:
            self._since.clear()
            return True
        self._since[id(optimizer)] = self._since.get(id(optimizer), 0) + 1
        is_anew = self.optimizer is not None and bool(_ids(optimizer) & _ids(self.optimizer))
        if self.optimizer is None or is_anew or self._since[id(optimizer)] > 1:
            self.optimizer = optimizer
            self._since.clear()
        return optimizer is self.optimizer

    def saw(self, optimizer: Any) -> None:
        """An optimizer that holds weights of the model takes a step, whether it counts or not."""
        self._taken += 1
        wait = self._taken - self._last.get(optimizer, self._taken - 1)
        self._longest = max(self._longest, wait if optimizer in self._last else self._taken)
        self._last[optimizer] = self._taken

    def held(self, *, by_all: bool = False) -> set[int]:
        """What the leader holds now (an optimizer may be given more later), or all that were seen do."""
        every = list(self._last) if by_all else []
        return set[int]().union(*(_ids(each) for each in (*every, self.optimizer) if each is not None))

    @property
    def is_certain(self) -> bool:
        """Have steps enough been seen, that what no optimizer holds is held by none?"""
        return self._taken >= max(CERTAIN, PERIODS * self._longest)

    @property
    def searches(self) -> bool:
        """Does a step of it look along a line, and go as far as it likes (LBFGS)?"""
        return type(self.optimizer).__name__ == "LBFGS" and isinstance(self.optimizer, Optimizer)


def _ids(optimizer: Any) -> set[int]:
    return {id(p) for group in optimizer.param_groups for p in group["params"]}
