"""Look at the mask in force in each causal attention: the first place it hides must be the next one."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.mask_lines import by_place, not_of, wrong_mask
from headwise.doctor.masks import causal_forms, hidden, later
from headwise.doctor.probe import Probe


@check(
    id="HW103",
    title="The causal mask lets each position see the next token",
    why="The next token is the answer: training copies it, and generation does not have it.",
    fix="Hide all keys with j > i: torch.triu(ones, 1) is what to hide, torch.tril(ones) what to keep.",
    needs={"causal", "sites"},
    explains={
        "padding-attended",
        "causal-leak",
        "causal-missing-in-one-layer",
        "cache-mismatch",
        "left-padding-changes-answer",
    },
    quick=True,
)
def causal_off_by_one(probe: Probe) -> Iterator[Found | Tried]:
    forms = causal_forms(probe)
    bad = [site for site, form in forms if form == "off-by-one"]
    if not bad:
        yield Tried(f"looked at the diagonal of {len(forms)} causal masks")
        return
    site = bad[0]
    rows = site.shape[1]
    seen = ~hidden(site)
    by = 1 if bool((~seen[:, later(rows, rows, 1)]).all()) else 2
    place, others = wrong_mask(probe, probe.base.record, site, not_of(probe.sites, bad), by_place)
    yield Found(
        f"in {len(bad)} of {len(forms)} causal attentions position i sees up to i+{by} in every row; "
        "a causal mask ends at i",
        at=place,
        module=site.module,
        related=tuple(related(others, "the mask takes part here", place)),
    )
