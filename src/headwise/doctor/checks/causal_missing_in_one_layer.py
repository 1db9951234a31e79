"""Look at the mask in force in each causal attention: all of them must hide the future, not only some."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import applied_at, related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.mask_lines import alike, by_place, made_at, mask_values, not_of, own_line
from headwise.doctor.masks import causal_forms, hidden
from headwise.doctor.probe import Probe


@check(
    id="HW102",
    title="One attention sees the future while the others do not",
    why="One layer without its mask is enough to copy the answer in training; generation has none to copy.",
    fix="Give the causal mask to every layer of the decoder, local and global ones alike.",
    needs={"causal", "sites"},
    explains={"padding-attended", "causal-leak", "cache-mismatch", "left-padding-changes-answer"},
    quick=True,
)
def causal_missing_in_one_layer(probe: Probe) -> Iterator[Found | Tried]:
    forms = causal_forms(probe)
    bad = [site for site, form in forms if form in {"open", "part"}]
    good = [site for site, form in forms if form == "causal"]
    if not bad or not good:
        yield Tried(f"compared the masks of {len(forms)} causal attentions")
        return
    site = bad[0]
    seen = ~hidden(site)
    ahead = int(seen[:, 0].sum(-1).max()) - 1
    # A mask that was made for this site, but hides too little, is the mistake; else the call without one.
    record, masks, theirs = (
        probe.base.record,
        mask_values(site),
        [v for each in good for v in mask_values(each)],
    )
    made = next(
        (line for test in (by_place, alike) if (line := made_at(probe, record, masks, test, theirs)[1])), None
    )
    lines = own_line(site, not_of(probe.sites, bad))
    place = made or lines
    yield Found(
        f"attention {site.index + 1} of {len(probe.sites)} ({site.module or 'in the model'}) lets "
        f"position 0 see {ahead} of {probe.length - 1} later places; {len(good)} others let it see none",
        at=place,
        module=site.module,
        related=tuple(
            related(
                [applied_at(site), lines, applied_at(good[0])], "attention without and with the mask", place
            )
        ),
    )
