"""A failing operation told so that its author sees the mistake: the code, and its operands with named axes.

Axes are named by their sizes: those of the inputs, of the tables that ids are looked up in, of torch's
modules, and of every split of a width that the pass made before it failed. A size with two names is told by
its place.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import flatten
from headwise.doctor.check import Place
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Op, Recording
from headwise.doctor.weights import named
from headwise.doctor.written import whose

# What makes an exception one of shapes, ids or types of numbers, in the words of torch, einops and numpy.
WORDS = re.compile(
    r"size|shape|dimension|\bdims?\b|out of (range|bounds)|dtype|scalar type|divisible|stride|subscript"
    r"|broadcast|mat1|mat2|batch2|num_classes|bool tensor|boolean masks|multiply up|embedding dim"
    r"|feature number|batch number"
    r"|Long|must be at least|number of channels|einops|without overflow"
)
OTHERS = re.compile(
    r"same device|out of memory|does not require grad|deepcopy|state_dict|not implemented for"
)
KINDS = (RuntimeError, IndexError, ValueError, AssertionError, TypeError)


@dataclass(frozen=True)
class Operand:
    """A tensor that takes part: how the user's line calls it, and its axes."""

    name: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: torch.dtype = torch.float32

    def __str__(self) -> str:
        inside = ", ".join(f"{axis} {size}".strip() for axis, size in zip(self.axes, self.shape, strict=True))
        return f"{self.name} is [{inside}]" + (
            "" if self.dtype.is_floating_point else f" {short(self.dtype)}"
        )


@dataclass(frozen=True, eq=False)
class Failure:
    """An exception about shapes: the line, the code that failed, its operands, torch's words."""

    place: Place | None
    code: str
    operands: tuple[Operand, ...]
    message: str
    op: Op | None
    module: str
    callers: tuple[Place, ...]
    names: Names
    target: tuple[int, ...] = ()
    is_assertion: bool = False  # raised by the user's own code, not by torch's


def failure_of(probe: Probe) -> Failure | None:
    """The failure of the probe's first run; None where it is not about shapes, ids or types of numbers."""
    error = probe.failure
    assert error is not None
    frames = frames_of(error)
    record = probe.failed_record
    op = record.ops[-1] if record is not None and record.ops and record.error is error else None
    message = (str(error).strip().splitlines() or [""])[0]
    if not is_about_shapes(error, message, op is not None, frames):
        return None
    own = own_of(frames)
    names = Names.of(probe, record)
    code, tensors = ("", []) if not own else on_the_line(own[-1])
    if (op is not None and op.name not in {"add", "sub"}) or not tensors:
        seen = _operands(op) if op is not None else []
        if not tensors or not _covers(tensors, seen):
            tensors = seen or tensors
    module = _failing_module(probe, frames)
    return Failure(
        place=own[-1].place if own else None,
        code=code,
        operands=tuple(
            Operand(n, tuple(t.shape), names.axes(tuple(t.shape)), t.dtype) for n, t in tensors[:3]
        ),
        message=message,
        op=op,
        module=module if module is not None else (op.module if op is not None else ""),
        callers=tuple(f.place for f in reversed(own[:-1])),
        names=names,
        target=_target(op, message),
        is_assertion=isinstance(error, (AssertionError, ValueError))
        and "unpack" not in message
        and bool(frames)
        and whose(frames[-1].place.file) in {"user", "library"},
    )


def is_about_shapes(error: BaseException, message: str, op_failed: bool, frames: list[At]) -> bool:
    """Has this exception to do with shapes, ids or dtypes? A missing argument or attribute has not."""
    if not isinstance(error, KINDS) and type(error).__name__ != "EinopsError":
        return False
    if OTHERS.search(message):
        return False
    if "to unpack" in message:
        last = linecache.getline(frames[-1].place.file, frames[-1].place.line) if frames else ""
        return "shape" in last or ".size(" in last
    if isinstance(error, TypeError) and not re.search(r"dtype|Tensor", message):
        return False
    if isinstance(error, TypeError) and re.search(r"argument|callable|subscriptable|attribute", message):
        return False
    return op_failed or WORDS.search(message) is not None or _tells_sizes(message)


def _tells_sizes(message: str) -> bool:
    return bool(re.search(r"\d+ ?(!=|==|<=?|>=?) ?\d+|\[\d+(, \d+)+\]|\(\d+(, \d+)+\)", message))


# Frames


@dataclass(frozen=True, eq=False)
class At:
    """A frame of the traceback with the line it was at."""

    frame: types.FrameType
    place: Place
    span: tuple[int, int, int, int] | None


def frames_of(error: BaseException) -> list[At]:
    """The frames from the call of the model to the failure, without the doctor's own."""
    found: list[At] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if whose(code.co_filename) != "doctor":
            spot = next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None), (None,) * 4)
            span = cast("tuple[int, int, int, int]", spot) if all(x is not None for x in spot) else None
            found.append(At(trace.tb_frame, Place(code.co_filename, trace.tb_lineno, code.co_qualname), span))
        trace = trace.tb_next
    return found


def own_of(frames: list[At]) -> list[At]:
    """Those of the user's code, or where there are none those of libraries."""
    by_owner = {
        owner: [f for f in frames if whose(f.frame.f_code.co_filename) == owner]
        for owner in ("user", "library")
    }
    return by_owner["user"] or by_owner["library"]


def on_the_line(at: At) -> tuple[str, list[tuple[str, Tensor]]]:
    """The code that failed, and the tensors it names, in the order in which it names them."""
    line = linecache.getline(at.place.file, at.place.line).strip()
    segment = _segment(at) or line
    found = _tensors_in(segment, at.frame) or _tensors_in(line, at.frame)
    return " ".join(segment.split()), list(found.items())


def _tensors_in(segment: str, frame: types.FrameType) -> dict[str, Tensor]:
    try:
        tree = ast.parse(segment.strip(), mode="eval")
    except SyntaxError:
        try:
            tree = ast.parse(segment.strip())
        except SyntaxError:
            return {}
    found: dict[str, Tensor] = {}
    for node in _in_order(tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            value = _value_of(node, frame)
            if isinstance(value, Tensor):
                found.setdefault(ast.unparse(node), value)
    return found


def _segment(at: At) -> str:
    if at.span is None:
        return ""
    first, last, start, end = at.span
    lines = [linecache.getline(at.place.file, n) for n in range(first, last + 1)]
    if not all(lines):
        return ""
    raw = [line.encode() for line in lines]
    raw[-1] = raw[-1][:end]
    raw[0] = raw[0][start:]
    return b"".join(raw).decode(errors="replace")


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes from left to right; what an attribute hangs on is not looked at by itself (x of x.shape is)."""
    if isinstance(node, ast.Attribute) and node.attr not in {"shape", "size"}:
        inner = node.value
        yield node
        yield from _in_order(inner)
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _value_of(node: ast.expr, frame: types.FrameType) -> object:
    """A variable or a chain of attributes, read without calling anything of the user's."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        held = _value_of(node.value, frame)
        if isinstance(held, nn.Module):
            for kept in (held._parameters, held._buffers, held._modules, vars(held)):  # pyright: ignore
                if node.attr in kept:
                    return kept[node.attr]  # pyright: ignore
        return None
    return None


def _failing_module(probe: Probe, frames: list[At]) -> str | None:
    """The path of the innermost module whose method was running."""
    paths = {id(module): path for path, module in named(probe.model)} if probe.failed_record else {}
    for at in reversed(frames):
        me = at.frame.f_locals.get("self")
        if isinstance(me, nn.Module) and id(me) in paths:
            return paths[id(me)]
    return None


def _operands(op: Op) -> list[tuple[str, Tensor]]:
    """The tensors of a failing operation, by what they are."""
    told: list[tuple[str, Tensor]] = []
    for place, value in enumerate(op.inputs):
        name = (
            value.name.removeprefix("parameter ").removeprefix("buffer ")
            or ("input", "the other", "a third")[min(place, 2)]
        )
        told.append((name, value.tensor))
    return told


def _covers(tensors: list[tuple[str, Tensor]], seen: list[tuple[str, Tensor]]) -> bool:
    """Are the operands that the line names those that failed (of the same sizes, whatever their form)?"""
    sizes = [t.numel() for _, t in tensors]
    return not seen or any(t.numel() in sizes for _, t in seen)


def _target(op: Op | None, message: str) -> tuple[int, ...]:
    """The shape that a view or reshape asked for."""
    found = re.search(r"shape '\[([-\d, ]+)\]' is invalid", message) or re.search(
        r"Provided sizes \[([-\d, ]+)\]", message
    )
    if found:
        return tuple(int(x) for x in found[1].split(","))
    if op is not None and op.name in {"view", "_unsafe_view", "reshape", "expand"} and len(op.args) > 1:
        sizes = op.args[1]
        return tuple(int(x) for x in sizes) if isinstance(sizes, (list, tuple)) else ()  # pyright: ignore
    return ()


# Names of axes


@dataclass(eq=False)
class Names:
    """What an axis of a given size may be, most certain first."""

    batch: int = 0
    lengths: dict[int, str] = field(default_factory=lambda: {})
    widths: dict[int, str] = field(default_factory=lambda: {})
    heads: set[int] = field(default_factory=lambda: set())
    head_widths: set[int] = field(default_factory=lambda: set())

    @classmethod
    def of(cls, probe: Probe, record: Recording | None) -> Names:
        """Names from the inputs, the model's tables and modules, and what the pass did until it failed."""
        names = cls()
        adapted = probe.adapted
        leaves = flatten(probe.subject.inputs)
        for stream in adapted.streams:
            leaf = leaves[stream.leaf]
            if leaf.dim() >= 2:
                names.batch = names.batch or leaf.shape[adapted.batch_axis]
                word = "time" if len(adapted.streams) == 1 else f"{stream.name} time"
                names.lengths.setdefault(leaf.shape[1 - adapted.batch_axis], word)
            elif leaf.dim() == 1:
                names.lengths.setdefault(leaf.shape[0], "time")
            if not stream.is_ids and leaf.dim() == 3:
                names.widths.setdefault(leaf.shape[-1], "features")
        for module in probe.user_model.modules():
            names._module(module)
        for op in record.ops if record is not None else ():
            names._operation(op)
        return names

    def _module(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            self.widths.setdefault(module.embedding_dim, "d_model")
            self.widths.setdefault(module.num_embeddings, "table")
        if isinstance(module, nn.MultiheadAttention):
            known: dict[str, int] = vars(module)
            self.heads.add(known["num_heads"])
            self.head_widths.add(known["head_dim"])
            self.widths.setdefault(known["embed_dim"], "d_model")

    def _operation(self, op: Op) -> None:
        if op.name == "embedding" and op.inputs[1].sources and op.outputs:
            self.widths[op.inputs[0].shape[0]] = "vocabulary"
            self.widths[op.inputs[0].shape[1]] = "d_model"
        if op.name in {"view", "_unsafe_view"} and op.outputs:
            old, new = op.inputs[0].shape, op.out.shape
            if len(new) == len(old) + 1 and len(new) >= 4 and old[:-1] == new[:-2]:
                self.heads.add(new[-2])
                self.head_widths.add(new[-1])

    def axes(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """A name for each axis, "" where nothing tells; no name twice in a row of heads and lengths."""
        count = len(shape)
        told: list[str] = []
        for place, size in enumerate(shape):
            is_last = place == count - 1
            candidates = list(self._candidates(size, place, count))
            fresh = [c for c in candidates if c not in told or "time" in c]
            told.append((fresh or candidates or [""])[0])
            if is_last and count >= 4 and size in self.head_widths:
                told[-1] = "head width"
        return tuple(told)

    def _candidates(self, size: int, place: int, count: int) -> Iterator[str]:
        if size == 1:
            return
        is_last = place == count - 1
        if (
            place == 0
            and size == self.batch
            and not (count == 2 and size in self.lengths and size in self.widths)
        ):
            yield "batch"
        if is_last and count >= 3 and size in self.head_widths and count >= 4:
            yield "head width"
        if is_last and count >= 2 and size in self.widths and size not in self.lengths:
            yield self.widths[size]
        if count >= 4 and 0 < place < count - 1 and size in self.heads and size not in self.lengths:
            yield "heads"
        if size in self.lengths:
            yield self.lengths[size]
        if size in self.heads and count >= 4:
            yield "heads"
        if size in self.widths:
            yield self.widths[size]
        if size in self.head_widths:
            yield "head width"
        if size == self.batch:
            yield "batch"
        yield from self._products(size, is_last)

    def _products(self, size: int, is_last: bool) -> Iterator[str]:
        pairs: list[tuple[int, str, int, str]] = []
        if not is_last:
            pairs += [(self.batch, "batch", h, "heads") for h in sorted(self.heads)]
            pairs += [(self.batch, "batch", n, word) for n, word in self.lengths.items()]
        for a, one, b, other in pairs:
            if a * b == size:
                yield f"{one} x {other}"
        if is_last:
            for width, word in self.widths.items():
                if word == "d_model" and width and size % width == 0 and 2 <= size // width <= 4:
                    yield f"{size // width} x d_model"


def short(dtype: torch.dtype) -> str:
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")
