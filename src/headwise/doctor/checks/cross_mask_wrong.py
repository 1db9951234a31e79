"""Look at what cross-attention hides of the source: neither a 'future' nor where the target is padded."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.mask_lines import by_place, not_of, two_valued, wrong_mask
from headwise.doctor.masks import hidden, later
from headwise.doctor.padded import padded
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site


@check(
    id="HW115",
    title="Cross-attention is masked with the target's mask",
    why="The first target positions see only the first source positions: what is needed there is hidden.",
    fix="Give cross-attention the source's padding mask alone; the target's belong to its self-attention.",
    needs={"encoder-decoder", "sites"},
    explains={
        "cross-mask-missing", "padding-attended", "batch-changes-answer", "fully-masked-row-nan", "first-nan",
        "shape-mismatch", "cache-mismatch",
    },
    quick=True,
)  # fmt: skip
def cross_mask_wrong(probe: Probe) -> Iterator[Found | Tried]:
    cross = probe.sites_of("cross")
    bad = [site for site in cross if _triangular(site)]
    error = probe.resize_error
    crash = (
        f"; with another length of the source it fails: {str(error).splitlines()[0][:120]}" if error else ""
    )
    if bad:
        site = bad[0]
        place, others = wrong_mask(probe, probe.base.record, site, not_of(probe.sites, bad), by_place)
        yield Found(
            f"in {len(bad)} of {len(cross)} cross-attentions target position i sees the source up to i alone"
            f"{crash}",
            at=place,
            module=site.module,
            related=tuple(related(others, "the mask takes part here", place)),
        )
        return
    tried = f"looked at what {len(cross)} cross-attentions hide of the source"
    try:
        pass_ = padded(probe)
        taken = pass_.of_form("other-stream")
    except NotApplicable:
        yield Tried(tried)
        return
    if not taken:
        yield Tried(f"{tried}, padded and not")
        return
    site = taken[0].site
    wrong = {sight.site.index for sight in taken}
    good = [each for each in pass_.sites if each.index not in wrong]
    place, others = wrong_mask(probe, pass_.run.record, site, good, two_valued)
    yield Found(
        f"in {len(taken)} of {len(cross)} cross-attentions the hidden keys are those where the target is "
        f"padded, not the source{crash}",
        at=place,
        module=site.module,
        related=tuple(related(others, "the mask takes part here", place)),
    )


def _triangular(site: Site) -> bool:
    """Does each target position see the source up to its own place (or the one before) and no further?"""
    _, rows, columns = site.shape
    if min(rows, columns) < 3:
        return False
    gone = hidden(site)
    return any(torch.equal(gone, later(rows, columns, by, gone.device).expand_as(gone)) for by in (0, -1))
