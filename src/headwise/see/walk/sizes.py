"""What each operation of a pass read and made: shapes and memory, without any of the numbers.

The recording of a small pass holds all its tensors. Of a large one only this is kept: what is recognised is
recognised on a part of the batch, and the sizes are those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.doctor.graph import MOVES, Op, Recording, flat, pointer_of


@dataclass(frozen=True)
class Form:
    """One tensor: its shape, its type, its bytes, and the number of the memory it lies in."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    memory: int


@dataclass(frozen=True)
class Call:
    """One operation: what it read, what it made, and how many bytes of new memory that took."""

    name: str
    inputs: tuple[Form, ...]
    outputs: tuple[Form, ...]
    allocated: int


class Sizes:
    """The sizes of every operation of a recording.

    calls: those of another pass, `aligned` with the recording; without them the recording's own.
    """

    def __init__(self, record: Recording, calls: Sequence[tuple[Op | None, Call]] | None = None) -> None:
        self.calls = list(_own(record) if calls is None else calls)
        self.of: dict[Op, Call] = {op: call for op, call in self.calls if op is not None}
        self._beside: dict[Op, int] = {}
        waiting = 0
        last: Op | None = None
        for op, call in self.calls:  # a copy that only one of the passes makes counts for what follows it
            if op is None:
                waiting += call.allocated
                continue
            self._beside[op], waiting, last = waiting, 0, op
        if last is not None:
            self._beside[last] += waiting

    def allocated(self, ops: Iterable[Op]) -> int:
        """Bytes of new memory that the results of these operations take."""
        return sum(self.of[op].allocated + self._beside[op] for op in ops if op in self.of)

    def peak(self) -> tuple[int, Op | None]:
        """The most bytes held at once, and by which operation, where each is freed after its last use.

        What was there before the pass (weights, inputs) is not counted; the results of the last operation
        are held to the end.
        """
        last: dict[int, int] = {}
        for place, (_, call) in enumerate(self.calls):
            last.update(dict.fromkeys((form.memory for form in (*call.inputs, *call.outputs)), place))
        if self.calls:
            last.update(dict.fromkeys((form.memory for form in self.calls[-1][1].outputs), len(self.calls)))
        ends: dict[int, int] = {}
        now = most = 0
        where: Op | None = None
        for place, (op, call) in enumerate(self.calls):
            now += call.allocated
            if now > most:
                most, where = now, op or where
            if call.allocated:
                known = {form.memory for form in call.inputs}
                new = {form.memory: form.bytes for form in call.outputs if form.memory not in known}
                for memory, size in new.items():
                    ends[last[memory]] = ends.get(last[memory], 0) + size
            now -= ends.pop(place, 0)
        return most, where


def _own(record: Recording) -> Iterator[tuple[Op, Call]]:
    held = set[int]()
    for op in record.ops:
        if op.name == "update":
            continue
        inputs = tuple(form_of(v.tensor, _memory(v.key)) for v in op.inputs)
        held |= {form.memory for form in inputs}
        outputs = tuple(form_of(v.tensor, _memory(v.key)) for v in op.outputs)
        yield op, Call(op.name, inputs, outputs, _allocated(outputs, held))
        held |= {form.memory for form in outputs}


def aligned(record: Recording, calls: Sequence[Call]) -> list[tuple[Op | None, Call]] | None:
    """The calls of another pass, each with the recorded operation that it is; None where they differ.

    All but views and copies must be the same, in the same order. Of those some runs have more than others (an
    axis of size 1 asks for no copy): those of the same kind are paired, and what is left has no operation.
    """
    mine = _runs([op for op in record.ops if op.name != "update"])
    other = _runs(calls)
    if [run[-1].name for run in mine[:-1]] != [run[-1].name for run in other[:-1]] or len(mine) != len(other):
        return None
    ends = [(run[-1], made[-1]) for run, made in zip(mine[:-1], other[:-1], strict=True)]
    is_twice = all(_is_twice(op, call) for op, call in ends)  # one row, which the recording has twice
    found: list[tuple[Op | None, Call]] = []
    for place, (ops, made) in enumerate(zip(mine, other, strict=True)):
        last = [] if place == len(mine) - 1 else [(ops[-1], made[-1])]
        views = _paired(ops[:-1], made[:-1], is_twice) if last else _paired(ops, made, is_twice)
        found.extend((*views, *last))
    return found


def _paired(ops: Sequence[Op], calls: Sequence[Call], is_twice: bool) -> list[tuple[Op | None, Call]]:
    """Each call with its operation, in order, as many as may be paired."""
    most = [[0] * (len(calls) + 1) for _ in range(len(ops) + 1)]
    for i, op in enumerate(ops, 1):
        for j, call in enumerate(calls, 1):
            paired = most[i - 1][j - 1] + 1 if _fits(op, call, is_twice) else 0
            most[i][j] = max(paired, most[i - 1][j], most[i][j - 1])
    pairs: list[tuple[Op | None, Call]] = []
    i, j = len(ops), len(calls)
    while j:
        if i and _fits(ops[i - 1], calls[j - 1], is_twice) and most[i][j] == most[i - 1][j - 1] + 1:
            i, j = i - 1, j - 1
            pairs.append((ops[i], calls[j]))
        elif i and most[i][j] == most[i - 1][j]:
            i -= 1
        else:
            j -= 1
            pairs.append((None, calls[j]))
    return pairs[::-1]


def _fits(op: Op, call: Call, is_twice: bool) -> bool:
    """Is it the same view or copy, of as many axes (and of the same sizes but for the rows)?"""
    alike = _VIEWED if op.name in _VIEWED else {op.name}
    ranks = [len(v.shape) for v in op.outputs] == [len(form.shape) for form in call.outputs]
    return call.name in alike and ranks and (not is_twice or _is_twice(op, call))


def _is_twice(op: Op, call: Call) -> bool:
    pairs = [
        (mine, whole)
        for value, form in zip(op.outputs, call.outputs, strict=False)
        for mine, whole in zip(value.shape, form.shape, strict=False)
    ]
    return all(mine in {whole, 2 * whole} for mine, whole in pairs)


_VIEWED = {"view", "_unsafe_view", "_reshape_alias"}
_Named = TypeVar("_Named", Op, Call)


def _runs(calls: Sequence[_Named]) -> list[list[_Named]]:
    """Operations in runs, each of views and copies with the one operation of another kind that ends it."""
    runs: list[list[_Named]] = [[]]
    for call in calls:
        runs[-1].append(call)
        if call.name not in _VIEWS:
            runs.append([])
    return runs


_VIEWS = MOVES - {
    "cat",
    "stack",
    "index",
    "gather",
    "index_select",
    "constant_pad_nd",
    "roll",
    "flip",
    "repeat",
}


def form_of(tensor: Tensor, memory: int) -> Form:
    """A tensor without its numbers."""
    size = tensor.numel() * tensor.element_size()
    return Form(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), size, memory)


def _memory(key: tuple[Any, ...]) -> int:
    return int(key[1]) if key[0] == "object" else int(key[0])


def _allocated(outputs: tuple[Form, ...], held: set[int]) -> int:
    new = {form.memory: form.bytes for form in outputs if form.memory not in held}
    return sum(new.values())


class Sizing(TorchDispatchMode):
    """Note the sizes of everything that runs while it is active, and hold none of it."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.calls: list[Call] = []
        self._numbers: dict[int, int] = {}
        self._count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the compiler is imported, seconds for nothing

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [*_tensors(args), *_tensors(kwargs)]
        inputs = tuple(form_of(t, self._number(t)) for t in given)
        held = {pointer_of(t) for t in given}
        out = func(*args, **kwargs)
        made: list[Form] = []
        new: dict[int, int] = {}
        for tensor in flat(out):
            pointer = pointer_of(tensor)
            if pointer not in held:  # its memory is new, or was given back by another
                self._numbers.pop(pointer, None)
                new[pointer] = tensor.numel() * tensor.element_size()
                held.add(pointer)
            made.append(form_of(tensor, self._number(tensor)))
        self.calls.append(Call(func.overloadpacket.__name__, inputs, tuple(made), sum(new.values())))
        return out

    def _number(self, tensor: Tensor) -> int:
        pointer = pointer_of(tensor)
        if pointer not in self._numbers:
            self._count += 1
            self._numbers[pointer] = self._count
        return self._numbers[pointer]


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, (tuple, list)):
        return [tensor for each in tree for tensor in _tensors(each)]  # pyright: ignore
    if isinstance(tree, dict):
        return [tensor for each in tree.values() for tensor in _tensors(each)]  # pyright: ignore
    return []
