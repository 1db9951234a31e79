"""Multiply by ten what enters a norm, or add three: the size of its result must stay what it was."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, related
from headwise.doctor.blocks import blocks
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.flow import weight_of
from headwise.doctor.norms import Norm, ask, factors_after, like_noise, norms, rms
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
    for norm in written:
        length = _unit_length(probe, norm)
        if length is not None:
            yield Found(
                f"what it gives has size {length:.2g} with a gain of one, the inverse root of its "
                f"{norm.entered.shape[-1]} features: a sum of squares stands where their mean belongs",
                at=norm.place,
                module=norm.module,
                severity="warning",
                related=tuple(
                    related([op.place for op in norm.statistics], "takes part in the norm", norm.place)
                ),
            )
            return
    yield Tried(f"scaled and moved what enters each of {len(written)} norms written by hand")


def _unit_length(probe: Probe, norm: Norm) -> float | None:
    """The size of what it gives if that is a vector of length one times a gain of ones, read by weights.

    Queries and keys of length one are meant (cosine attention), and so is a gain that makes up for it.
    """
    width = norm.entered.shape[-1]
    factors = factors_after(norm.out)
    gains = [probe.parameter_tensor(name) for name in norm.gains]
    if width < 16 or not gains or any(float((gain.detach() - 1).abs().max()) > 0.5 for gain in gains):
        return None
    last = factors[-1].out if factors else norm.out
    with torch.no_grad():
        results = probe.base.record.replay({norm.entered: like_noise(norm.entered)}, [norm.out, last])
    lengths = [rms(result) for result in results]
    is_read = any(weight_of(op) is not None for op, _ in blocks(probe).meets(last))
    return lengths[1] if is_read and all(0.9 < length * width**0.5 < 1.1 for length in lengths) else None


def _near(a: float, b: float) -> bool:
    return max(a, b) <= FACTOR * min(a, b) and min(a, b) > 0
