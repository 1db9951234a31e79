"""Multiply by ten what enters a norm, or add three: the size of its result must stay what it was."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.norms import ask, like_noise, norms, rms
from headwise.doctor.probe import Probe

FACTOR = 1.5  # a right norm keeps its result's size to a few percent; without the root it changes tenfold


@check(
    id="HW404",
    title="A norm written by hand does not normalise",
    why="What comes out still grows or shrinks with what goes in, so activations drift from layer to layer.",
    fix="Subtract the mean and divide by the root of the variance, or divide by the root of the mean square.",
    explains={
        "depth-unstable", "cannot-memorise", "attention-collapsed", "initial-loss-wrong", "bad-init",
        "first-nan", "half-precision-overflow", "learning-rate-too-high", "eps-wrong",
    },
    quick=True,
)  # fmt: skip
def norm_formula_wrong(probe: Probe) -> Iterator[Found | Tried]:
    written = [norm for norm in norms(probe) if norm.kind == "written"]
    if not written:
        raise NotApplicable("no norm written by hand was recognised")
    record = probe.base.record
    for norm in written:
        noise = like_noise(norm.entered)
        unit, large, shifted = (rms(ask(record, norm, x)) for x in (noise, 10 * noise, noise + 3))
        # Numbers as large as the last two leave no part in the result to any epsilon that makes sense.
        if _near(large, rms(ask(record, norm, 100 * noise))) and _near(
            rms(ask(record, norm, 10 * noise + 30)), large
        ):
            continue
        yield Found(
            f"its result has size {unit:.2g} for unit inputs, {large:.2g} for inputs ten times as large and "
            f"{shifted:.2g} for inputs moved by three: a norm's stays the same",
            at=norm.place,
            module=norm.module,
            related=tuple(
                related(
                    [*(op.place for op in norm.statistics), *callers(norm.op)],
                    "takes part in the norm",
                    norm.place,
                )
            ),
        )
        return
    yield Tried(f"scaled and moved what enters each of {len(written)} norms written by hand")


def _near(a: float, b: float) -> bool:
    return max(a, b) <= FACTOR * min(a, b) and min(a, b) > 0
