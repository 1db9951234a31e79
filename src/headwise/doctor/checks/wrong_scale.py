"""Measure the factor between projected queries and keys and the softmax: is it a well-known wrong one?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Severity, Tried, check
from headwise.doctor.heads import Heads, head_count, heads, in_library
from headwise.doctor.probe import Probe
from headwise.doctor.scales import NEAR, Gauge, gauge
from headwise.doctor.trace import Op


@check(
    id="HW202",
    title="Scores are scaled by the wrong factor",
    why="Scores too large saturate the softmax at once; too small, every position counts the same.",
    fix="Divide q k^T by sqrt(d_head), the width of one head, once.",
    needs={"sites"},
    explains={"attention-collapsed", "depth-unstable", "learning-rate-too-high"},
    quick=True,
)
def wrong_scale(probe: Probe) -> Iterator[Found | Tried]:
    measured = [(each, found) for each in heads(probe) if (found := gauge(probe, each)) is not None]
    if not measured:
        raise NotApplicable(
            "no attention has one constant factor: queries are normalised, or a learned factor takes part"
        )
    kinds = {round(found.factor * each.site.d_head**0.5, 3) for each, found in measured}
    for each, found in measured:
        verdict = _wrong(probe, each, found)
        if verdict is None or len(kinds) > 2:  # a factor of each layer's own is a design
            continue
        how, severity = verdict
        site = each.site
        op = _step(each, found)
        if in_library(op) and found.factor < 1:
            severity = "note"
        yield Found(
            f"the factor between q k^T and the softmax is {found.factor:.3g}, that is {how}; "
            f"d_head = {site.d_head} asks for 1/sqrt({site.d_head}) = {site.d_head**-0.5:.3g}",
            at=op.place,
            module=site.module,
            related=(
                *related([step.place for step, _ in found.steps], "a factor stands here", op.place),
                *related(
                    [site.product.place, *callers(op)[1:2]], "the product of queries and keys", op.place
                ),
            ),
            severity=severity,
        )
        return
    yield Tried(f"measured the factor of {len(measured)} attention(s)")


def _wrong(probe: Probe, each: Heads, found: Gauge) -> tuple[str, Severity | None] | None:
    """What the factor is in words, and how sure it is wrong; None where it is right or not a known one."""
    site = each.site
    d, right = site.d_head, site.d_head**-0.5
    if _is(found.factor, right) or _is(found.factor, 1.0):
        return None
    if _is(found.factor, 1 / d):
        twice = sum(_is(factor, right) for _, factor in found.steps) >= 2
        if twice:
            return f"1/sqrt({d}) twice", None
    x = each.of["q"][0].x
    width = x.shape[each.of["q"][0].axis]
    heads_ = head_count(probe, site)
    known = {
        f"sqrt({d}): multiplied, not divided": d**0.5,
        f"{d}: multiplied by the width": float(d),
        f"1/sqrt({width}), of the model's width": width**-0.5,
        f"1/sqrt({heads_ * d}), of all heads together": (heads_ * d) ** -0.5,
        f"sqrt({width}): multiplied, and by the model's width": width**0.5,
        f"{d}^(-1/4): scaled by half, or a root taken twice": d**-0.25,
        f"{d}^(-3/2): scaled by the width and again by its root": d**-1.5,
        f"1/sqrt({heads_}), of the number of heads": heads_**-0.5,
        f"1/sqrt({site.shape[2]}), of the number of keys": site.shape[2] ** -0.5,
    }
    name = next((name for name, value in known.items() if _is(found.factor, value)), None)
    if name is None:
        return None
    if _is(found.factor, 1 / d):  # as many heads as a head is wide: muP's factor looks the same
        optimizer = probe.subject.optimizer
        rates = (
            {group.get("lr") for group in optimizer.param_groups} if optimizer is not None else set[object]()
        )
        return name, "note" if len(rates) > 1 else "warning"
    return name, None


def _is(factor: float, value: float) -> bool:
    return abs(factor - value) <= NEAR * abs(value)


def _step(each: Heads, found: Gauge) -> Op:
    """The operation that scales: the last constant factor, or the product where none is seen."""
    return found.steps[-1][0] if found.steps else each.site.product
