"""Look at the gradient of the loss at positions whose label is padding: it must be zero."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from headwise.doctor.batch import Batch
from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.losses import first_of, loss_lines, pairs, target_lines
from headwise.doctor.probe import Probe


@check(
    id="HW503",
    title="Padding counts in the loss",
    why="The model is trained to write padding: the loss looks good, and answers come out empty or short.",
    fix="Leave padding out: cross_entropy(..., ignore_index=pad_id), or labels of -100 there.",
    needs={"loss", "sequence"},
    quick=True,
)
def pad_in_loss(probe: Probe) -> Iterator[Found | Tried]:
    targets = probe.subject.targets
    pad = probe.pad_id
    if pad is None or not isinstance(targets, Tensor) or targets.is_floating_point() or targets.dim() != 2:
        raise NotApplicable("no pad_id, or no [B, T] targets")
    met = pairs(probe) if _has_pairs(probe) else None
    by = probe.gradients().by_logit
    if by is None or by.dim() != 3:
        raise NotApplicable("the loss gives the logits no gradient")
    main = probe.main
    read = Batch.given(probe.adapted).leaves[main.leaf] if main is not None and main.is_ids else None
    if read is None or read.shape != targets.shape:
        raise NotApplicable("targets do not stand beside the tokens read")
    # Where a pad is read and a pad is to be written: the first pad after a sentence may be its end mark.
    beyond = (targets == pad) & (read == pad)
    if not bool(beyond.any()):
        raise NotApplicable("no target holds padding")
    pull = by.abs().sum(-1)
    if met is not None:
        good = (met.row >= 0) & (met.label_row >= 0)
        padded = beyond[met.label_row[good], met.label_time[good]]
        size = pull[met.row[good], met.time[good]]
    elif pull.shape == beyond.shape:
        padded, size = beyond.flatten(), pull.flatten()
    else:
        raise NotApplicable("targets and logits could not be paired")
    weight = float(size[padded].sum() / size.sum().clamp(min=1e-30))
    if weight < 1e-6:
        yield Tried(f"the gradient at {int(padded.sum())} padded labels is zero")
        return
    place, others = first_of([*loss_lines(probe)[:1], *target_lines(probe)[:1]])
    yield Found(
        f"{int(padded.sum())} of {len(padded)} labels are padding, and {weight:.0%} of the loss's gradient "
        "at the logits comes from them (0 % when they are left out)",
        at=place,
        related=tuple(related(others, "the targets are made here", place)),
    )


def _has_pairs(probe: Probe) -> bool:
    try:
        pairs(probe)
    except NotApplicable:
        return False
    return True
