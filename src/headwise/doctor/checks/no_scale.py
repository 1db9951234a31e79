"""Measure the factor from projected queries and keys to the softmax: is there none, and nothing instead?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.heads import heads, in_library
from headwise.doctor.probe import Probe
from headwise.doctor.scales import gauge, spread


@check(
    id="HW201",
    title="Scores are not scaled by 1/sqrt(d_head)",
    why="Scores grow with the width of a head: the softmax saturates and queries and keys stop learning.",
    fix="Divide q k^T by sqrt(d_head) before the mask and the softmax.",
    needs={"sites"},
    explains={"attention-collapsed", "depth-unstable", "learning-rate-too-high"},
    quick=True,
)
def no_scale(probe: Probe) -> Iterator[Found | Tried]:
    measured = 0
    for each in heads(probe):
        site = each.site
        found = gauge(probe, each)
        if found is None:
            continue
        measured += 1
        if abs(found.factor - 1) > 1e-3 or site.d_head < 2:
            continue
        reach = spread(probe, each)
        if reach is None or reach < site.d_head**-0.25:
            continue  # weights drawn smaller by sqrt(d_head) take the factor's place
        op = site.product
        yield Found(
            f"the factor between q k^T and the softmax is {found.factor:.3g}, where d_head = {site.d_head} "
            f"asks for {site.d_head**-0.5:.3g}; no weights are drawn smaller to make up for it",
            at=op.place,
            module=site.module,
            related=tuple(related([site.place, *callers(op)[1:3]], "the scores on their way", op.place)),
            severity="note" if in_library(op) else None,
        )
        return
    if not measured:
        raise NotApplicable(
            "no attention has one constant factor: queries are normalised, or a learned factor takes part"
        )
    yield Tried(f"measured the factor of {measured} attention(s)")
