"""A pass in which some tensors are looked at: operations are counted, and nothing is recorded or changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.doctor.graph import flat
from headwise.see.watch.plan import SKIPPED, Plan, Tap


class Taps(TorchDispatchMode):
    """While active, `see` is called with every tap of the plan that comes by, in a plain context.

    is_lost: operations came that the plan does not know; what was seen until then is worth nothing.
    """

    def __init__(self, plan: Plan, see: Mapping[Tap, Callable[[Tensor], None]]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._sequence = plan.sequence
        self._before: dict[int, list[tuple[int, Callable[[Tensor], None]]]] = {}
        self._after: dict[int, list[tuple[int, Callable[[Tensor], None]]]] = {}
        for tap, call in see.items():
            by = self._after if tap.is_result else self._before
            by.setdefault(tap.op, []).append((tap.place, call))
        self._count = 0
        self._has_strayed = False

    @property
    def is_lost(self) -> bool:
        """Whether the pass was another one than the plan's."""
        return self._has_strayed or self._count != len(self._sequence)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first pass imports the whole compiler, seconds for nothing

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in SKIPPED:
            return func(*args, **kwargs)
        number = self._count
        self._count += 1
        if self._has_strayed or number >= len(self._sequence) or self._sequence[number] is not func:
            self._has_strayed = True
            return func(*args, **kwargs)
        if number in self._before:
            given = _operands(args) + _operands(tuple(kwargs.values()))
            for place, call in self._before[number]:
                call(given[place])
        out = func(*args, **kwargs)
        if number in self._after:
            made = flat(out)
            for place, call in self._after[number]:
                call(made[place])
        return out


def _operands(tree: Any) -> list[Tensor]:
    """The tensors among the arguments, in the order in which a recording has them."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, (tuple, list)):
        return [tensor for each in tree for tensor in _operands(each)]  # pyright: ignore[reportUnknownVariableType]
    return []
