"""Look which label each row of logits learns: the token after the next means two shifts."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.losses import cut_line, cuts_targets, first_of, learned, loss_lines, share, target_lines
from headwise.doctor.probe import Probe


@check(
    id="HW505",
    title="The targets are shifted twice",
    why="The model learns to predict the token after the next: generation drops every other token.",
    fix="Shift once: either in the data (targets = ids[:, 1:]) or in the loss, not in both.",
    needs={"causal", "loss", "sequence", "tokens"},
    quick=True,
)
def targets_shifted_twice(probe: Probe) -> Iterator[Found | Tried]:
    label, ids = learned(probe)
    following, after = share(label, ids, 1, probe.pad_id), share(label, ids, 2, probe.pad_id)
    if after < 0.95 or following > 0.5:
        yield Tried(f"{following:.0%} of the rows learn the next token, {after:.0%} the one after it")
        return
    again, cut = cuts_targets(probe), cut_line(probe, probe.adapted.handed.targets)
    place, others = first_of([*loss_lines(probe), *target_lines(probe)])
    place = again or cut or place
    others = [line for line in (cut, *others) if line is not None]
    yield Found(
        f"{after:.0%} of the rows of logits learn the token two places on, {following:.0%} the next one",
        at=place,
        related=tuple(related([*target_lines(probe), *others], "the targets are shifted here", place)),
    )
