"""What is added to the tokens must differ along the text, not from one row of the batch to the next."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import made_places, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.positions import Added, additions, lookup, made_line, table_behind
from headwise.doctor.probe import Probe


@check(
    id="HW302",
    title="The positions run along the batch axis",
    why="Every token of a row gets the row's number as its position: order is lost, and answers depend on "
    "the row's place in the batch.",
    fix="Slice the table by the length of the text, and let it broadcast over the batch: table[:, "
    ":x.size(1)] for [B, T, D], table[:x.size(0)] only for [T, B, D].",
    needs={"stream", "rows", "finite"},
    explains={
        "positions-missing", "batch-changes-answer", "left-padding-changes-answer", "positions-count-padding",
        "learned-positions-constant", "cannot-memorise", "cache-position-wrong", "cache-mismatch",
    },
    quick=True,
)  # fmt: skip
def positions_on_batch_axis(probe: Probe) -> Iterator[Found | Tried]:
    found = additions(probe)
    if not probe.adapted.streams:
        raise NotApplicable("no input is a sequence")
    for added in found:
        if not added.varies_in_batch or added.varies_in_time:
            continue
        shown = added.shown
        first, second = shown.select(added.batch_axis, 0), shown.select(added.batch_axis, 1)
        by = float((first - second).abs().max())
        place = _cut_at(probe, added)
        others = [added.op.place, *made_places(probe, table_behind(added.table))]
        yield Found(
            f"what is added to the {added.stream.name} is the same at all {shown.shape[added.time_axis]} "
            f"positions, and differs by up to {by:.2g} between row 0 and row 1 of the batch (shape "
            f"{list(added.table.shape)} on {list(shown.shape)})",
            at=place,
            module=added.op.module,
            related=tuple(related(others, "the positions are added or made here", place)),
        )
        return
    yield Tried(f"looked at {len(found)} additions of numbers that no token moves")


def _cut_at(probe: Probe, added: Added) -> Place | None:
    """Where the positions were counted (an arange), or the table of positions was cut to length."""
    held = lookup(added.table)
    if held is not None and held[1].op is not None:
        return made_line(probe, held[1])
    if table_behind(added.table).op is not None:
        return made_line(probe, table_behind(added.table))
    return (added.table.op.place if added.table.op is not None else None) or added.op.place
