"""Look which label each row of logits learns (its most negative gradient): the next token or the one read?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.batch import numbers
from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.losses import cut_line, first_of, learned, loss_lines, sees_itself, share, target_lines
from headwise.doctor.probe import Probe


@check(
    id="HW504",
    title="The model is trained to repeat the token it has just read",
    why="Copying the input solves the task: the loss falls to nothing, and generation repeats itself.",
    fix="Shift the targets: inputs = ids[:, :-1], targets = ids[:, 1:] (once: in the data, or in the loss).",
    needs={"causal", "loss", "sequence", "tokens"},
    quick=True,
)
def targets_not_shifted(probe: Probe) -> Iterator[Found | Tried]:
    label, ids = learned(probe)
    same, following = share(label, ids, 0, probe.pad_id), share(label, ids, 1, probe.pad_id)
    if same < 0.95 or following > 0.5 or _is_start_missing(probe) or not sees_itself(probe):
        yield Tried(f"{following:.0%} of the rows learn the next token, {same:.0%} the one just read")
        return
    cut = cut_line(probe, probe.adapted.handed.targets)  # someone cut here, and cut wrongly
    place, others = first_of([*target_lines(probe), *loss_lines(probe)])
    if cut is not None:
        place, others = cut, [place, *others] if place is not None else others
    yield Found(
        f"{same:.0%} of the rows of logits learn the token that stands at the same position of the input, "
        f"{following:.0%} the next one",
        at=place,
        related=tuple(related(others, "inputs and targets meet here", place)),
    )


def _is_start_missing(probe: Probe) -> bool:
    """Is it the decoder's input that lacks the shift (no start token), rather than the targets?"""
    if probe.kind != "encoder-decoder":
        return False
    _, ids = learned(probe)
    return len(set(numbers(ids[:, 0]))) > 1
