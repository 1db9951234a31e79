"""Cut a row to its own length, and pad it again: its words must keep the positions that they had."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Severity, Tried, check
from headwise.doctor.positions import in_library
from headwise.doctor.probe import Probe
from headwise.doctor.runner import is_finite
from headwise.doctor.shifting import Shift, shifted

ALWAYS_LONG = (
    "The batch is as long as the table of positions: if every batch is, nothing is wrong, but in a shorter "
    "one the same words would get other positions, and another answer."
)


@check(
    id="HW309",
    title="Padding shifts the positions of the words",
    why="The same sentence gets other positions, and another answer, in a batch with a longer one.",
    fix="Count words only: (keep.cumsum(1) - 1).clamp(min=0), or 0, 1, 2 ... with the padding at the end.",
    needs={"stream", "rows", "padding", "finite"},
    explains={"left-padding-changes-answer", "batch-changes-answer"},
)
def positions_count_padding(probe: Probe) -> Iterator[Found | Tried]:
    if not is_finite(probe.given.logits):
        raise NotApplicable("the logits of the batch are not finite (see fully-masked-row-nan)")
    tried: list[str] = []
    for stream in probe.adapted.streams:
        given = probe.given.batch.padding(stream)
        if given is None or not bool(given.any()):
            continue
        left = bool(given[:, 0].any()) and not bool(given[:, -1].any())
        tested = shifted(probe, stream, left)
        if tested is None:
            continue
        side = "left" if left else "right"
        tried.append(f"padded rows of the {stream.name} from {tested.short} to {tested.length} on the {side}")
        shift = tested.shift
        if shift is None:
            continue
        yield Found(
            f"{tested.short} words of the {stream.name}, padded on the {side} to {tested.length}: what is "
            f"added to them as positions differs by {shift.by:.0%} from what they get without padding",
            at=shift.at,
            module=shift.added.op.module,
            related=tuple(related([shift.added.op.place], "the positions are added here", shift.at)),
            severity=_severity(probe, shift, left),
            why=ALWAYS_LONG if shift.is_fixed else "",
        )
        return
    if not tried:
        raise NotApplicable("no padding in the batch, or no position table is added to the tokens")
    yield Tried("; ".join(tried))


def _severity(probe: Probe, shift: Shift, left: bool) -> Severity | None:
    """On the left it matters where such rows are decoded: left-padding-changes-answer tells it there.

    Where every batch is as long as the table, as sessions cut to one length are, nothing ever shifts.
    """
    if shift.is_fixed or in_library(shift.added.op) or (left and probe.subject.generate is not None):
        return "note"
    return "warning" if left else None
