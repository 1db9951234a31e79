"""Change one row of the batch: no other row's output may move."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headwise.doctor.blame import callers, constructed, mixing_op, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.probe import Probe, differs
from headwise.doctor.runner import gap
from headwise.doctor.trace import Op, Value


@check(
    id="HW209",
    title="Rows of the batch see one another",
    why="An answer depends on its neighbours in the batch, which are gone when it stands alone.",
    fix="Let the batch axis be no one's time axis: give batch_first=True, or transpose before and after.",
    needs={"stream", "rows", "finite"},
    explains={
        "causal-leak", "causal-missing-in-one-layer", "causal-off-by-one", "causal-mask-in-encoder",
        "mask-wrong-axis", "mask-excludes-self", "mask-not-forwarded", "mask-inverted",
        "fully-masked-row-nan", "padding-attended", "padding-pooled", "cross-mask-missing",
        "cross-mask-wrong", "positions-missing", "positions-on-batch-axis", "batch-changes-answer",
        "left-padding-changes-answer", "cache-mismatch", "cache-position-wrong", "cannot-memorise",
        "attention-collapsed", "unused-parameters",
    },
    quick=True,
)  # fmt: skip
def batch_mixed(probe: Probe) -> Iterator[Found | Tried]:
    logits = probe.base.logits
    if _by_row(probe, logits) is None:
        raise NotApplicable(
            f"the output, of shape {list(logits.shape)}, has no axis that is the batch's alone"
        )
    wrong = _meetings(probe)
    if not wrong:
        yield Tried(f"changed each of {probe.batch.rows} rows, and looked at the others' outputs")
        return
    if not _smoothly(probe, wrong[0][0]):
        yield Tried(
            "a row moves another's output by whole choices only: rows compete for room, as experts' tokens do"
        )
        return
    row, other = wrong[0]
    by = _changed(probe, row)[other]
    op = mixing_op(probe)
    layer = _time_major_layer(probe, op)
    place, module, extra = _where(probe, op, layer)
    yield Found(
        f"changing row {row} of the batch moved the output of row {other} by {by:.2g} "
        f"(noise {probe.noise:.0e}); {len({b for _, b in wrong})} of {probe.batch.rows} rows move",
        at=place,
        module=module,
        related=tuple(related(extra, "the rows meet here", place)),
    )


def _meetings(probe: Probe) -> list[tuple[int, int]]:
    """The pairs of rows of which changing the first moves the output of the second."""
    rows = range(probe.batch.rows)
    held = probe.rows_seen.get(probe.base.logits_value.index)
    seen = _by_row(probe, held) if held is not None else None
    if seen is not None:
        moves = {(row, other): bool((seen[other] >> row & 1).any()) for row in rows for other in rows}
    else:  # the runs differ in their operations, and only their outputs can be compared
        by = {row: _changed(probe, row) for row in rows}
        moves = {(row, other): by[row][other] > 0 for row in rows for other in rows}
    return [pair for pair, there in moves.items() if there and pair[0] != pair[1]]


def _by_row(probe: Probe, logits: Tensor) -> Tensor | None:
    """The output with the rows first; also where rows and positions were flattened into one axis."""
    rows, length = probe.batch.rows, probe.length
    axis = probe.adapted.batch_axis
    if logits.dim() == 2 and logits.shape[0] == rows * length and length > 1:
        return logits.view(length, rows, -1).transpose(0, 1) if axis else logits.view(rows, length, -1)
    if list(logits.shape).count(rows) > 1 and logits.dim() == 2:
        return None  # a score of each row against each
    for each in (axis, 0, 1):
        if logits.dim() > each and logits.shape[each] == rows:
            return logits.movedim(each, 0)
    return None


def _changed(probe: Probe, row: int) -> list[float]:
    """By how much each row's output moves when this one is changed; 0 where it does not."""
    batch = probe.batch
    for stream in probe.adapted.streams:
        where = probe.everywhere(stream)
        where[row] = True
        batch = probe.change(stream, where, batch)
    after = probe.run(batch, record=False).logits
    before = probe.base.logits
    if after.shape != before.shape:
        return [0.0] * probe.batch.rows
    there, by = _by_row(probe, differs(before, after, probe.eps)), _by_row(probe, gap(before, after))
    assert there is not None and by is not None
    return [float(by[r].max()) if bool(there[r].any()) else 0.0 for r in range(probe.batch.rows)]


@torch.no_grad()
def _smoothly(probe: Probe, row: int) -> bool:
    """Does the least change of the row's vectors move other rows: influence, not a choice that tips over?

    Where parts of the model round to float32 the least change drowns: a larger one must then move them
    in proportion, which no choice does.
    """
    if _moved(probe, row, 1e-4) > 0:
        return True
    small, large = _moved(probe, row, 1e-3), _moved(probe, row, 1e-2)
    return small > 0 and 5 < large / small < 20


def _moved(probe: Probe, row: int, size: float) -> float:
    """By how much other rows' outputs move when this row's vectors do, by `size` of their spread.

    Infinity where there is nothing to move, or nobody can tell whose an output is.
    """
    record = probe.base.record
    main = {stream.leaf for stream in probe.adapted.streams}
    starts: dict[Value, Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    for op in record.ops:
        bits = {leaf for v in op.inputs for leaf in main if v.sources >> leaf & 1}
        reads = [
            v
            for v in op.inputs
            if v.op is None and v.name.startswith("input") and v.tensor.is_floating_point()
        ]
        for value in [op.out] if op.name == "embedding" and bits else reads:
            held = probe.rows_seen.get(value.index)
            mine = torch.ones_like(value.tensor, dtype=torch.bool) if held is None else held == 1 << row
            if held is None and value.op is None:
                mine = torch.zeros_like(value.tensor, dtype=torch.bool)
                mine.select(probe.adapted.batch_axis if mine.dim() > 1 else 0, row).fill_(True)
            step = size * float(value.tensor.double().std() or 1.0)
            drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.tensor)
            starts[value] = value.tensor + step * drawn * mine.to(value.tensor)
    if not starts:
        return torch.inf
    (after,) = record.replay(starts, [probe.base.logits_value])
    there = _by_row(probe, differs(probe.base.logits, after, probe.eps))
    by = _by_row(probe, gap(probe.base.logits, after))
    if there is None or by is None:
        return torch.inf
    return max((float(by[r].max()) for r in range(len(by)) if r != row and bool(there[r].any())), default=0.0)


def _time_major_layer(probe: Probe, op: Op | None) -> str | None:
    """The attention of torch around an operation that takes time first, by its path."""
    for path, _ in reversed(op.modules) if op is not None else ():
        module = probe.module_at(path) if path else None
        if isinstance(module, nn.MultiheadAttention) and not module.batch_first:
            return path
    return None


def _where(probe: Probe, op: Op | None, layer: str | None) -> tuple[Place | None, str, list[Place]]:
    """The line, the module and other lines: a wrong view before it, a layer's constructor, or the mixing."""
    if op is None:
        return None, "", []
    shows = callers(op)
    here = shows[0] if shows else None
    view = _shuffled(probe, op)
    if view is not None and view.place is not None:
        return view.place, view.module, shows[:1]
    if layer is not None:
        made = constructed(probe, layer)
        if made is not None:
            return made, layer, shows[:1]
    return here, op.module, shows[1:2]


def _shuffled(probe: Probe, mixing: Op) -> Op | None:
    """The move before the rows met after which no one axis tells rows apart any more, as one did before."""
    before = probe.base.record.ancestors(mixing.inputs)
    for op in probe.base.record.ops[: mixing.index]:
        if not op.moves or op.out not in before:
            continue
        if _is_split(probe, op.out) and not any(_is_split(probe, v) for v in op.inputs):
            return op
    return None


def _is_split(probe: Probe, value: Value) -> bool:
    """Do the rows of the batch lie along several axes at once? Each element must be moved by one row."""
    held = probe.rows_seen.get(value.index)
    if held is None:
        return False
    single = held.new_tensor([1 << row for row in range(probe.batch.rows)])
    if not bool(torch.isin(held, single).all()):
        return False
    return sum(bool((held.narrow(axis, 0, 1) != held).any()) for axis in range(held.dim())) > 1
