"""Follow logits and targets to the cross-entropy: each row must meet a label of its own sentence."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.losses import first_of, loss_lines, pairs, time_axis
from headwise.doctor.probe import Probe


@check(
    id="HW502",
    title="Logits and targets are flattened in different orders",
    why="Each row of logits is trained on the label of another sentence: nothing can be learned.",
    fix="Bring logits and targets to the same order of axes before flattening: transpose, then reshape.",
    needs={"loss", "stream"},
    explains={"targets-not-shifted", "targets-shifted-twice", "cannot-memorise", "decoder-input-not-shifted"},
    quick=True,
)
def logits_flattened_wrong(probe: Probe) -> Iterator[Found | Tried]:
    met = pairs(probe)
    row, time = (met.time, met.row) if time_axis(probe) == 0 else (met.row, met.time)
    label_row, label_time = met.label_row, met.label_time
    if probe.adapted.layout == "time-major":
        label_row, label_time = label_time, label_row
    counted = met.label >= 0
    torn = counted & (met.row < 0)
    wrong = counted & ~torn & (row != label_row)
    share = float((torn | wrong)[counted].float().mean()) if bool(counted.any()) else 0.0
    if share < 0.2:
        yield Tried(f"followed {len(row)} rows of logits and their labels to the cross-entropy")
        return
    place, others = first_of(loss_lines(probe))
    if bool(torn.any()):
        first = int(torn.nonzero()[0])
        seen = f"row {first} of the cross-entropy is put together from the logits of several positions"
    else:
        first = int(wrong.nonzero()[0])
        seen = (
            f"the logits of sentence {int(row[first])}, position {int(time[first])} meet the label of "
            f"sentence {int(label_row[first])}, position {int(label_time[first])}"
        )
    yield Found(
        f"{seen}; so do {share:.0%} of all rows",
        at=place,
        related=tuple(related(others, "takes part in the loss", place)),
    )
