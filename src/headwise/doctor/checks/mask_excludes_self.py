"""Look at the mask in force in each causal attention: a position must see itself."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.mask_lines import by_place, not_of, wrong_mask
from headwise.doctor.masks import causal_forms
from headwise.doctor.probe import Probe


@check(
    id="HW109",
    title="The causal mask hides each position from itself",
    why="The latest token, which tells most, is not read, and the first position has nothing to see.",
    fix="Keep the diagonal: torch.tril(ones) has it, torch.triu(ones, 1) hides only what comes after.",
    needs={"causal", "sites"},
    explains={"fully-masked-row-nan", "first-nan", "causal-leak", "cache-mismatch", "attention-collapsed"},
    quick=True,
)
def mask_excludes_self(probe: Probe) -> Iterator[Found | Tried]:
    forms = causal_forms(probe)
    bad = [site for site, form in forms if form == "excludes-self"]
    if not bad:
        yield Tried(f"looked at the diagonal of {len(forms)} causal masks")
        return
    site = bad[0]
    place, others = wrong_mask(probe, probe.base.record, site, not_of(probe.sites, bad), by_place)
    yield Found(
        f"in {len(bad)} of {len(forms)} causal attentions position i sees up to position i-1 and not itself",
        at=place,
        module=site.module,
        related=tuple(related(others, "the mask takes part here", place)),
    )
