"""Find the first operation that makes NaN or infinity of finite numbers: forwards, in the loss, backwards."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.backward import Bad, forward_origin, training_pass
from headwise.doctor.blame import constructed, made_places, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Value


@check(
    id="HW901",
    title="A number becomes NaN or infinite",
    why="One step with a gradient that is not a number turns every weight into NaN, for good.",
    fix="Keep the operand of log, sqrt and division away from 0 (add eps inside the root), and exp from "
        "large numbers.",
    needs={"run"},
    explains={
        "cannot-memorise", "initial-loss-wrong", "learning-rate-too-high", "no-warmup-post-norm",
        "depth-unstable", "pad-in-loss", "loss-scaled-wrong",
    },
    quick=True,
)  # fmt: skip
def first_nan(probe: Probe) -> Iterator[Found | Tried]:
    bad = _in_evaluation(probe)
    tried = "one pass in eval mode"
    if bad is None:
        passed = training_pass(probe)
        if passed.is_half:
            yield Tried(tried + "; half precision is looked at by half-precision-overflow")
            return
        bad = passed.bad
        tried += ", one in train mode and back, in the model's own precision"
        if passed.error is not None:
            tried = f"one pass in eval mode (training failed: {type(passed.error).__name__})"
    if bad is None:
        yield Tried(tried + ": every number finite")
        return
    made, module = _made(probe, bad.leaf) if bad.leaf is not None else (None, bad.module)
    where = {"forward": "in the forward pass", "loss": "in the loss", "backward": "on the way back"}[
        bad.phase
    ]
    if bad.name in {"_softmax", "_safe_softmax"} and bad.phase == "forward":
        fix = "Let every query see one key at least (itself, say), or fill with finfo.min and not with -inf."
    elif made is not None:
        fix = "Draw or load it again, with finite numbers: these were there before the pass."
    else:
        fix = ""
    # where an operation overflowed, that is the cause, and the operation that made NaN of it the consequence
    began = f"; {bad.began}" if bad.began else ""
    overflowed = bad.before if bad.before is not None and not bad.is_filled else None
    place = overflowed or made or bad.place
    yield Found(
        f"{where}, {bad.evidence}{began}",
        at=place,
        module=module,
        related=(
            *related([bad.before], "the infinity comes from here", place),
            *related([bad.place] if overflowed is not None else [], "it becomes NaN here", place),
            *related([bad.place] if made is not None else [], "it is first used here", place),
            *related(bad.callers[1:], "called from here", place),
        ),
        fix=fix,
    )


def _made(probe: Probe, leaf: Value) -> tuple[Place | None, str]:
    """Where what holds it was last drawn, else where its module was constructed; and that module."""
    kind, _, name = leaf.name.partition(" ")
    places = made_places(probe, leaf)
    module = name.rpartition(".")[0] if kind in {"parameter", "buffer"} else ""
    return (places[0] if places else constructed(probe, module)), module


def _in_evaluation(probe: Probe) -> Bad | None:
    """In the double-precision pass, where overflow of the model's own precision cannot be the reason."""
    for run in (probe.given, probe.base):
        logits = run.logits
        if logits.is_floating_point() and bool((torch.isnan(logits) | (logits == float("inf"))).any()):
            value = run.record.value_of(logits)
            if value is None:
                raise NotApplicable("the logits are not in the recording")
            return forward_origin(value)
    return None
