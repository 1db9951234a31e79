"""Whether padding shifts positions: a padded row is held against the same words cut to their own length."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from headwise.doctor.adapt import Stream
from headwise.doctor.check import Place
from headwise.doctor.positions import Added, additions, lookup, made_line, table_behind
from headwise.doctor.probe import Probe, Run

LEAST = 1e-4  # of the table's size; rounding gives 1e-7


@dataclass(frozen=True)
class Shift:
    """Words that get other positions when padded: by what share of the table's size, and the line.

    is_fixed: the batch is as long as the table has rows; so may every other be, and then nothing shifts.
    """

    added: Added
    by: float
    at: Place | None
    is_fixed: bool = False


@dataclass(frozen=True)
class Tested:
    """A row of `short` words padded to `length`, how many tables were looked at, the first that shifts."""

    short: int
    length: int
    tables: int
    shift: Shift | None


def shifted(probe: Probe, stream: Stream, left: bool) -> Tested | None:
    """Pad a row of a stream and look what is added to its words; None where that cannot be tried."""
    return probe.memo(f"shifting.{stream.name}.{left}", lambda: _shifted(probe, stream, left))


def _shifted(probe: Probe, stream: Stream, left: bool) -> Tested | None:
    own = [added for added in additions(probe) if added.stream == stream and added.is_early and _tells(added)]
    length = probe.batch.length(stream)
    if not own or length < 4:
        return None
    short = max(3, length - 2)
    lengths = [length if row == 0 else short for row in range(probe.batch.rows)]
    padded = probe.run(probe.batch.padded(stream, lengths, left=left))
    alone = _alone(probe, stream, short)
    if alone is None:
        return None
    for added in own:
        by = _by(added, padded, alone, short, left)
        if by > LEAST:
            held = lookup(added.table)
            source = held[1] if held is not None and held[1].op is not None else added.table
            place = made_line(probe, source) or added.op.place
            return Tested(short, length, len(own), Shift(added, by, place, _is_fixed(probe, stream, added)))
    return Tested(short, length, len(own), None)


def _is_fixed(probe: Probe, stream: Stream, added: Added) -> bool:
    """Is the user's batch as long as the table allows (a row may be kept for padding itself)?"""
    table = table_behind(added.table)
    if table.op is not None or table.tensor.dim() < 2:
        return False
    return table.shape[-2] - probe.given.batch.length(stream) in {0, 1}


def _tells(added: Added) -> bool:
    """A table of positions, or one that the inputs look up (a count of words), alike without padding."""
    held = lookup(added.table)
    return added.varies_in_time or (not added.varies_in_batch and held is not None and bool(held[1].sources))


def _alone(probe: Probe, stream: Stream, short: int) -> Run | None:
    """The batch cut to so many positions: nothing is padded. None for a model of one length."""
    if any(probe.batch.read(each).dim() not in {2, 3} for each in probe.adapted.streams):
        return None
    lengths = {each.name: probe.batch.length(each) for each in probe.adapted.streams}
    try:
        return probe.run(probe.batch.cut({**lengths, stream.name: short}))
    except Exception:
        return None


def _by(added: Added, padded: Run, alone: Run, short: int, left: bool) -> float:
    """How far apart what is added to row 1's words is in the two runs; 0 where that cannot be compared."""
    shown: list[Tensor] = []
    for run in (padded, alone):
        op = run.record.ops[added.op.index] if added.op.index < len(run.record.ops) else None
        if op is None or op.name != added.op.name or op.out.tensor.dim() != added.op.out.tensor.dim():
            return 0.0
        table = op.inputs[added.op.inputs.index(added.table)].tensor.expand(op.out.shape)
        shown.append(table.movedim([added.batch_axis, added.time_axis], [0, 1])[1])
    words = shown[0][-short:] if left else shown[0][:short]
    if words.shape != shown[1].shape:
        return 0.0
    return float((words - shown[1]).abs().max() / shown[1].abs().max().clamp(min=1e-12))
