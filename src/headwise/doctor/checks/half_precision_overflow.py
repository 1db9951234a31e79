"""Run the pass in the half precision it is meant for and in double: name what overflows in half only."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.backward import training_pass
from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.probe import Probe

HALVES = {torch.float16, torch.bfloat16}


@check(
    id="HW902",
    title="A number overflows in half precision",
    why="float16 ends at 65,504: what is larger becomes infinite, and then NaN.",
    fix="Fill masks with torch.finfo(x.dtype).min, compute scores, sums and the loss in float32, or use "
    "bfloat16.",
    needs={"run"},
    explains={"first-nan", "cannot-memorise", "initial-loss-wrong", "loss-scaled-wrong", "pad-in-loss"},
)
def half_precision_overflow(probe: Probe) -> Iterator[Found | Tried]:
    own = {p.dtype for p in probe.user_model.parameters()}
    passed = training_pass(probe)
    if not own & HALVES and not passed.is_half:
        raise NotApplicable("the model computes in float32 or wider")
    if not bool(torch.isfinite(probe.given.logits[~torch.isneginf(probe.given.logits)]).all()):
        raise NotApplicable("the logits are not finite in double precision either (see first-nan)")
    if passed.error is not None:
        if "overflow" not in str(passed.error):
            raise NotApplicable(
                f"it does not run in its own precision: {type(passed.error).__name__}: {passed.error}"
            )
        yield Found(
            f"a constant does not fit into the model's precision: {passed.error}", at=passed.error_place
        )
        return
    bad = passed.bad
    if bad is None:
        yield Tried("one training pass in half precision, forwards and back: every number finite")
        return
    # the overflow is the cause, the operation that makes NaN of it the consequence
    place = bad.before or bad.place
    evidence = f"{bad.began}, then {bad.evidence}" if bad.began else bad.evidence
    where = {"forward": "in the forward pass", "loss": "in the loss", "backward": "on the way back"}[
        bad.phase
    ]
    yield Found(
        f"{where}, {evidence}; in double precision all is finite",
        at=place,
        module=bad.module,
        related=tuple(related([bad.place, *bad.callers[1:]], "it becomes NaN here", place)),
    )
