"""The data-flow graph of one forward pass: every operation with its operands, results and the user's line.

A `Value` is one tensor at one moment: a write in place makes new values of the tensor and of its views, and
the older ones keep what they held. An `Op` has the values it read and made, the frames of the user's code
that led to it (innermost first) and the module calls around it. Leaves carry a name: "parameter wte.weight",
"buffer mask", "input 0", or "" for a constant that was made elsewhere.

`Recording.replay` runs a part of the graph again with some values replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from headwise.doctor.check import Place
from headwise.doctor.frames import Frame

Key = tuple[Any, ...]

# Operations that only move elements: run on a tensor of indices they tell which element went where.
MOVES = {
    "alias", "as_strided", "cat", "chunk", "clone", "contiguous", "detach", "diagonal", "expand", "flip",
    "index", "index_select", "_reshape_alias", "permute", "repeat", "roll", "select", "slice", "split",
    "split_with_sizes", "squeeze", "stack", "t", "_to_copy", "transpose", "unbind", "unfold", "unsafe_split",
    "_unsafe_view", "unsqueeze", "view", "lift_fresh", "gather", "constant_pad_nd", "tril", "triu", "narrow",
    "unsafe_chunk", "unsafe_split_with_sizes", "repeat_interleave", "view_as", "pixel_shuffle", "movedim",
}  # fmt: skip
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "linear", "matmul", "dot"}
# Element by element, but not tagged so: torch tags masked_fill of a number, and not of a tensor nor in place.
ELEMENTWISE = {"masked_fill", "gelu", "floor_divide"}
DROPOUTS = {"native_dropout", "bernoulli", "bernoulli_", "_fused_dropout", "rrelu_with_noise"}


@dataclass(eq=False)
class Value:
    """One tensor at one moment. `op` made it (None for a leaf), `sources` are the inputs it descends from.

    key: the memory and the geometry it had; once that is written to, `tensor` is a copy of what it held.
    """

    index: int
    tensor: Tensor
    key: Key
    op: Op | None = None
    output: int = 0
    name: str = ""
    sources: int = 0
    trained: bool = False
    users: list[Op] = field(default_factory=lambda: [])
    frozen: bool = False
    needs_grad: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def __repr__(self) -> str:
        made = self.name or (self.op.name if self.op else "constant")
        return f"<{self.index} {made} {list(self.shape)}>"


@dataclass(eq=False)
class Op:
    """One operation. `args`/`kwargs` hold values where the call held tensors.

    writes: which of the inputs it writes to in place, -1 for none. An "update" is no call: it stands where a
    tensor is read again after its memory was written to, and its inputs are what it was and every such write.
    """

    index: int
    func: Any
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    inputs: tuple[Value, ...]
    frames: tuple[Frame, ...]
    modules: tuple[tuple[str, int], ...]
    outputs: tuple[Value, ...] = ()
    writes: int = -1

    @property
    def out(self) -> Value:
        return self.outputs[0]

    @property
    def place(self) -> Place | None:
        """The innermost line of the user's own files, of a library's where no user file takes part."""
        own = next((frame for frame in self.frames if not frame.library), None)
        chosen = own or next(iter(self.frames), None)
        return chosen.place if chosen else None

    @property
    def module(self) -> str:
        """The path of the innermost module that was running."""
        return self.modules[-1][0] if self.modules else ""

    @property
    def moves(self) -> bool:
        return self.name.rstrip("_") in MOVES

    @property
    def pointwise(self) -> bool:
        known = self.name in DROPOUTS or self.name.rstrip("_") in ELEMENTWISE
        return known or torch.Tag.pointwise in self.func.tags

    def numbers(self) -> list[float]:
        """The plain numbers among the arguments (a factor, a fill value, an axis)."""
        return [float(x) for x in self.args if isinstance(x, (int, float)) and not isinstance(x, bool)]

    def __repr__(self) -> str:
        where = f"{os.path.basename(self.place.file)}:{self.place.line}" if self.place else "?"
        return f"<op {self.index} {self.name} {[list(v.shape) for v in self.inputs]} {where}>"


class Recording:
    """The operations of one pass in the order in which they ran, and every value."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.values: list[Value] = []
        self.error: BaseException | None = None
        self.by_key: dict[Key, tuple[Value, int]] = {}
        self.settler: Callable[[Tensor], Value] | None = None

    def value_of(self, tensor: Tensor) -> Value | None:
        """The latest value that is this very tensor (or shares its memory and geometry)."""
        entry = self.by_key.get(key_of(tensor))
        return entry[0] if entry else None

    def settle(self, tensor: Tensor) -> None:
        """While recording: a tensor that was written to through a view becomes a value of its own again."""
        if self.settler is not None and key_of(tensor) in self.by_key:
            self.settler(tensor)

    def ancestors(self, values: Iterable[Value], *, stop: set[Value] | None = None) -> set[Value]:
        """Everything the values are computed from, themselves included; `stop` values are not passed."""
        found: set[Value] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if value in found or (stop and value in stop):
                continue
            found.add(value)
            if value.op is not None:
                todo.extend(value.op.inputs)
        return found

    def descendants(self, values: Iterable[Value], *, stop: set[Value] | None = None) -> set[Value]:
        """Everything that is computed from the values, themselves included; `stop` values are not passed."""
        found: set[Value] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if value in found or (stop and value in stop):
                continue
            found.add(value)
            for op in value.users:
                todo.extend(op.outputs)
        return found

    def between(self, starts: Iterable[Value], ends: Iterable[Value]) -> list[Op]:
        """The operations on some path from a start to an end, in order."""
        down, up = self.descendants(starts), self.ancestors(ends)
        ops = {value.op for value in down & up if value.op is not None}
        return sorted((op for op in ops if any(i in down for i in op.inputs)), key=lambda op: op.index)

    @torch.no_grad()
    def replay(self, changes: Mapping[Value, Tensor], wanted: Sequence[Value]) -> list[Tensor]:
        """The wanted values if the changed ones had held other numbers; all else as recorded.

        Nothing that is passed or recorded is written to, also where the operations write in place.
        """
        env = {value: _arranged(tensor, value) for value, tensor in changes.items()}
        up = self.ancestors(wanted, stop=set(changes))
        for op in self.ops:
            if not any(i in env for i in op.inputs) or not any(o in up for o in op.outputs):
                continue
            if op.name == "update":
                env[op.out] = _overlaid(op, env)
                continue
            held = env
            if op.writes >= 0:
                target = op.inputs[op.writes]
                held = {**env, target: _arranged(env.get(target, target.tensor), target)}
            given = _swap(op.args, lambda v, held=held: held.get(v, v.tensor))
            named = _swap(op.kwargs, lambda v, held=held: held.get(v, v.tensor))
            results = flat(op.func(*given, **named))
            for value, tensor in zip(op.outputs, results, strict=True):
                env.setdefault(value, tensor)
        return [env.get(value, value.tensor) for value in wanted]


def pointer_of(tensor: Tensor) -> int:
    """The address of its memory; a negative number of its own for a tensor without any."""
    try:
        return tensor.untyped_storage().data_ptr() or -id(tensor)
    except (RuntimeError, NotImplementedError):
        return -id(tensor)


def key_of(tensor: Tensor) -> Key:
    """What tells this tensor from others while all of them are alive: its memory and its geometry."""
    pointer = pointer_of(tensor)
    if pointer < 0 or tensor.layout is not torch.strided:
        return ("object", id(tensor))
    return (pointer, tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _arranged(tensor: Tensor, value: Value) -> Tensor:
    """A copy of a tensor with the strides that the value had, so that every later view of it is possible."""
    if value.key[0] == "object" or tensor.shape != value.tensor.shape:
        return tensor.detach().clone()
    strides = value.key[3]
    if any(stride == 0 and size > 1 for stride, size in zip(strides, tensor.shape, strict=True)):
        return tensor.detach().clone(memory_format=torch.contiguous_format)
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _overlaid(op: Op, env: Mapping[Value, Tensor]) -> Tensor:
    """What a tensor holds after writes to its memory: what it held, and over it each write in turn."""
    out = op.out
    parts = [
        value for value in op.inputs if value.key[0] == out.key[0] and value.tensor.dtype == out.tensor.dtype
    ]
    if out.key[0] == "object" or not parts:
        return env.get(op.inputs[0], op.inputs[0].tensor)
    size = max(_reach(value) for value in (out, *parts))
    memory = torch.zeros(size, dtype=out.tensor.dtype, device=out.tensor.device)
    for value in (out, *parts):
        _, offset, shape, strides, _ = value.key
        held = env.get(value, value.tensor)
        single = [wide if stride else min(wide, 1) for wide, stride in zip(shape, strides, strict=True)]
        for axis, count in enumerate(single):
            held = held.narrow(axis, 0, count)  # an expanded axis is one element, and is written once
        memory.as_strided(single, strides, offset).copy_(held)
    _, offset, shape, strides, _ = out.key
    return memory.as_strided(shape, strides, offset)


def _reach(value: Value) -> int:
    """How many elements of its memory a value needs."""
    _, offset, shape, strides, _ = value.key
    return offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size)


def flat(out: Any) -> list[Tensor]:
    """The tensors in what an operation returns."""
    if isinstance(out, Tensor):
        return [out]
    if isinstance(out, (tuple, list)):
        return [tensor for each in out for tensor in flat(each)]  # pyright: ignore[reportUnknownVariableType]
    return []


def _swap(tree: Any, to: Callable[[Value], Any]) -> Any:
    if isinstance(tree, Value):
        return to(tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_swap(each, to) for each in tree)  # pyright: ignore
    if isinstance(tree, dict):
        return {name: _swap(each, to) for name, each in tree.items()}  # pyright: ignore
    return tree
