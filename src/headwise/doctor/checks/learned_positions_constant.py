"""Look which rows of the position table are read: each position must read its own."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import made_places, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.order import order_enters
from headwise.doctor.positions import Added, additions, is_fixed, lookup, made_line, table_behind
from headwise.doctor.probe import Probe


@check(
    id="HW307",
    title="Every position gets the same position vector",
    why="The table is there, but it adds one constant to all tokens: order is lost as if there were no "
    "positions.",
    fix="Look up torch.arange(T): row t of the table for position t.",
    needs={"stream", "rows", "finite"},
    explains={"positions-missing", "cannot-memorise"},
    quick=True,
)
def learned_positions_constant(probe: Probe) -> Iterator[Found | Tried]:
    main = probe.main
    if main is not None and main.is_ids and probe.length < 2:
        raise NotApplicable("the batch has one position only")
    found = [added for added in additions(probe) if added.is_early]
    for added in found:
        rows = _unread(probe, added)
        if rows is None or order_enters(probe, added.stream):
            continue
        held = lookup(added.table)
        place = made_line(probe, held[1]) if held is not None and held[1].op is not None else None
        if place is None:
            made = made_places(probe, table_behind(added.table)) if added.has_own_time else []
            place = next(iter(made), None) or (added.table.op or added.op).place
        yield Found(
            f"all {added.shown.shape[added.time_axis]} positions of the {added.stream.name} get the same "
            f"vector, of a table with {rows} rows; nothing else tells their order",
            at=place,
            module=added.op.module,
            related=tuple(related([added.op.place], "it is added here", place)),
        )
        return
    if not any(added.varies_in_time for added in found):
        raise NotApplicable("no position table is added to the tokens")
    yield Tried(f"looked at {len(found)} additions of numbers that no token moves")


def _unread(probe: Probe, added: Added) -> int | None:
    """Rows of the table of which each position gets the same one; None where this is no such table.

    A table of fewer rows than there are positions is one of types (BERT's segments), not of positions.
    """
    if added.varies_in_time or added.varies_in_batch:
        return None
    if not bool(added.table.tensor.any()):  # zeros are to be learned, where they can be
        leaf = table_behind(added.table)
        frozen = leaf.name.startswith("parameter") and added.has_own_time and is_fixed(probe, added.table)
        return len(added.by_position) if frozen else None
    length = max(probe.given.batch.length(added.stream), added.shown.shape[added.time_axis])
    width = added.shown.shape[-1]
    held = lookup(added.table)
    table = held[0] if held is not None else table_behind(added.table)
    if table.op is not None and held is None:
        return len(added.by_position) if added.has_own_time else None
    if table.tensor.dim() < 2 or table.shape[-1] != width:
        return None
    rows = table.tensor.numel() // width
    return rows if rows >= max(length, 4) else None
