"""The position tables of a model: what is added to its tokens, where it was counted, and where it was made.

Nothing is told by a name: a position table is an operand that no token's content moves, added to one that
tokens do move.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.doctor.adapt import Stream
from headwise.doctor.blame import constructed, made_places
from headwise.doctor.check import NotApplicable, Place
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Op, Value

ADDS = {"add", "add_"}
FACTORS = {"mul", "mul_", "addcmul", "addcmul_"}
COUNTERS = {
    "arange",
    "linspace",
    "cumsum",
    "cummax",
    "zeros_like",
    "ones_like",
    "full_like",
    "full",
    "zeros",
    "ones",
}
LOOKUPS = {"embedding", "index_select", "index"}
STEPS = 400  # operations walked back from an operand; a projection lies some 30 behind in public models


@dataclass(eq=False)
class Added:
    """An addition of something that no token moves to something that tokens move.

    table: that operand; shown: it, shaped as the sum. batch_axis and time_axis of the sum were found by
    influence and by size. is_early: no attention comes before.
    """

    op: Op
    token: Value
    table: Value
    stream: Stream
    batch_axis: int
    time_axis: int
    is_early: bool

    @property
    def shown(self) -> Tensor:
        return self.table.tensor.expand(self.op.out.shape)

    @property
    def varies_in_time(self) -> bool:
        return varies(self.shown, self.time_axis)

    @property
    def varies_in_batch(self) -> bool:
        return varies(self.shown, self.batch_axis)

    @property
    def by_position(self) -> Tensor:
        """[T, ...] what is added at each position of the first row."""
        order = [self.time_axis, self.batch_axis]
        return self.shown.movedim(order, [0, 1])[:, 0]

    @property
    def has_own_time(self) -> bool:
        """Does the operand itself have a place for each position, whatever they hold now?"""
        shape = self.table.shape
        place = self.time_axis - (len(self.op.out.shape) - len(shape))
        return place >= 0 and shape[place] > 1


def varies(tensor: Tensor, axis: int) -> bool:
    """Does anything differ along this axis?"""
    return tensor.shape[axis] > 1 and bool((tensor != tensor.narrow(axis, 0, 1)).any())


def by_content(probe: Probe, value: Value) -> bool:
    """Do the tokens themselves (not only how many there are) move this value?"""
    if value.tensor.is_floating_point() or value.tensor.is_complex():
        if value.tensor.is_complex() and value.sources:
            return value.op is not None and any(by_content(probe, each) for each in value.op.inputs)
        return value.index in probe.rows_seen
    return bool(value.sources)


def additions(probe: Probe) -> list[Added]:
    """Every addition of numbers that no token moves to a stream of the model, in order."""
    return probe.memo("positions.additions", lambda: list(_additions(probe)))


def _additions(probe: Probe) -> Iterator[Added]:
    in_scores = {op for site in probe.sites for op in (*site.path, *site.after)}
    mixed = probe.base.record.descendants([site.mix.out for site in probe.sites])
    streams = {
        leaf
        for stream in probe.adapted.streams
        for leaf in (stream.leaf, stream.keep_leaf, stream.count_leaf)
    }
    for op in probe.base.record.ops:
        if op.name not in ADDS or len(op.inputs) != 2 or op in in_scores or not op.outputs:
            continue
        for token, table in (op.inputs, op.inputs[::-1]):
            if table.tensor.numel() < 2 or not table.tensor.is_floating_point() or by_content(probe, table):
                continue
            if any(
                table.sources >> leaf & 1 and leaf not in streams for leaf in range(len(probe.batch.leaves))
            ):
                continue  # given by the user: types, positions of their own
            if not token.tensor.is_floating_point() or not by_content(probe, token):
                continue
            found = _axes(probe, token, op.out)
            if found is not None:
                stream, batch_axis, time_axis = found
                yield Added(op, token, table, stream, batch_axis, time_axis, token not in mixed)
                break


def _axes(probe: Probe, token: Value, total: Value) -> tuple[Stream, int, int] | None:
    """The stream a sum belongs to, its batch axis by influence, its time axis by size."""
    taint = probe.rows_seen[token.index]
    if taint.shape != total.tensor.shape or taint.dim() < 3:
        return None
    rows = probe.batch.rows
    batch_axes = [
        axis for axis in range(taint.dim() - 1) if taint.shape[axis] == rows and _indexes(taint, axis)
    ]
    if len(batch_axes) != 1:
        return None
    for stream in reversed(probe.adapted.streams):
        if not token.sources >> stream.leaf & 1:
            continue
        length = probe.batch.length(stream)
        free = [axis for axis in range(taint.dim() - 1) if axis != batch_axes[0]]
        if length == 1 and taint.dim() == 3:  # an image: its patches are the axis that is left
            return stream, batch_axes[0], free[0]
        fits = [axis for axis in free if taint.shape[axis] == length and length > 1]
        if len(fits) == 1:
            return stream, batch_axes[0], fits[0]
    return None


def _indexes(taint: Tensor, axis: int) -> bool:
    """Does the place on this axis say which row of the batch an element belongs to?"""
    return all(
        bool(((held := taint.select(axis, row)) == 1 << row).logical_or(held == 0).all())
        for row in range(taint.shape[axis])
    )


def tables(probe: Probe, stream: Stream | None = None) -> list[Added]:
    """The additions that tell one position from the next, of one stream or of all."""
    found = [added for added in additions(probe) if added.varies_in_time]
    return [added for added in found if stream is None or added.stream == stream]


def is_fixed(probe: Probe, value: Value) -> bool:
    """Is no parameter that learns among what this is computed from?"""
    if not value.trained:
        return True
    return all(
        not _learns(probe, leaf)
        for leaf in probe.base.record.ancestors([value])
        if leaf.name.startswith("parameter")
    )


def _learns(probe: Probe, leaf: Value) -> bool:
    try:
        return probe.parameter_tensor(leaf.name.partition(" ")[2]).requires_grad
    except KeyError:
        return True


def table_behind(value: Value) -> Value:
    """The table behind moves and lookups: a leaf, or what was computed in the run."""
    for _ in range(STEPS):
        op = value.op
        if op is None:
            break
        if op.moves or op.name in LOOKUPS or op.name == "update":
            value = op.inputs[0]
        elif op.name in FACTORS | {"div"} and sum(v.tensor.numel() > 1 for v in op.inputs) == 1:
            value = max(op.inputs, key=lambda v: v.tensor.numel())
        else:
            break
    return value


def lookup(value: Value) -> tuple[Value, Value] | None:
    """The table and the indices of the lookup that made a value, behind moves and constant factors."""
    for _ in range(STEPS):
        op = value.op
        if op is None:
            return None
        if op.name in {"embedding", "index_select"} or (op.name == "index" and len(op.inputs) == 2):
            return op.inputs[0], op.inputs[-1]
        if not (op.moves or op.name == "update" or op.pointwise) or not op.inputs:
            return None
        value = max(op.inputs, key=lambda v: v.tensor.numel())
    return None


def in_library(op: Op) -> bool:
    """Was this operation written in an installed library rather than by the user?"""
    return bool(op.frames) and op.frames[0].library


def making_steps(probe: Probe, leaf: Value) -> list[tuple[Place, str]]:
    """What made a leaf before the run: (line, operation), the last first, then what made its operands.

    A tensor that is held as a plain attribute is found by its numbers.
    """
    if probe.making is None:
        return []
    tensor: Tensor | None = None
    if leaf.name.startswith(("buffer", "parameter")):
        tensor = probe.parameter_tensor(leaf.name.partition(" ")[2])
    else:
        for module in probe.user_model.modules():
            for held in vars(module).values():
                if isinstance(held, Tensor) and held.numel() >= leaf.tensor.numel() > 1 and held.dim() >= 2:
                    short = held.to(leaf.tensor).flatten()[: leaf.tensor.numel()]
                    if torch.equal(short, leaf.tensor.flatten()):
                        tensor = held
    if tensor is None:
        return []
    return [*probe.making.tensor(tensor), *probe.making.ancestry(tensor, most=40)]


def made_line(probe: Probe, value: Value) -> Place | None:
    """The user's line where positions were made: where the run counts them, else where a table is read.

    What was made before the run (a buffer cut to length) is blamed on the cut; a bare leaf on its making.
    """
    todo, seen = [value], set[Value]()
    while todo:
        current = todo.pop(0)
        op = current.op
        if op is None or current in seen:
            continue
        seen.add(current)
        if (op.name in COUNTERS or not op.inputs) and op.place is not None:
            return op.place
        todo.extend(v for v in op.inputs if not v.name.startswith("input"))
    if value.op is not None:
        return value.op.place
    return next(iter(made_places(probe, value)), None)


def first_sums(probe: Probe) -> list[Added]:
    """For each stream of ids, the first sum of tokens and a position table, before any attention."""
    found: list[Added] = []
    for stream in probe.adapted.streams:
        own = [added for added in tables(probe, stream) if added.is_early and stream.is_ids]
        found.extend(own[:1])
    return found


@dataclass(frozen=True)
class Sizes:
    """How large (root mean square) tokens and positions are where they are first added to one another."""

    added: Added
    tokens: float
    positions: float


def sizes(probe: Probe) -> list[Sizes]:
    """Both sizes at each of the `first_sums`. Raises NotApplicable where there is none."""
    found = [Sizes(a, _size(a.token.tensor), _size(a.shown)) for a in first_sums(probe)]
    if not found:
        raise NotApplicable("no position table is added to token embeddings")
    return found


def token_lines(probe: Probe, added: Added) -> list[Place | None]:
    """Where the table of the token embeddings was constructed, and its numbers drawn."""
    words = table_behind(added.token)
    path = words.name.partition(" ")[2].rpartition(".")[0]
    return [constructed(probe, path) if words.trained else None, *made_places(probe, words)]


def _size(tensor: Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())


def holder(op: Op, *others: Op) -> Place | None:
    """The line in the innermost function in which an operation and one of the others ran.

    A helper that only turns or adds positions is passed by: the line that calls it is meant.
    """
    inside = {(frame.place.file, frame.place.function) for other in others for frame in other.frames}
    for frame in op.frames:
        if (frame.place.file, frame.place.function) in inside and not frame.library:
            return frame.place
    return op.place
