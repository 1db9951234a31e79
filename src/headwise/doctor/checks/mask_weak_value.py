"""Look at the scores where a mask was put on: what it leaves of the weight must be nothing."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import applied_at, origin, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.mask_lines import mask_values, two_valued
from headwise.doctor.masks import FAINT, LETS_THROUGH, causal_form, later, weak_fill
from headwise.doctor.padded import padded
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.trace import Recording


@check(
    id="HW107",
    title="The mask's value is too weak to hide anything",
    why="Scores of about this size stand beside it: what should be hidden still gets weight.",
    fix="Fill with -inf (or torch.finfo(scores.dtype).min): not with 0, a small number or a moderate one.",
    needs={"sites"},
    explains=LETS_THROUGH,
    quick=True,
)
def mask_weak_value(probe: Probe) -> Iterator[Found | Tried]:
    looked = 0
    for record, site, places, what in _places(probe):
        looked += 1
        fill = weak_fill(site, places)
        if fill is None:
            continue
        place = _where(probe, record, site)
        weight = float(site.weights[places.expand(site.shape)].max())
        made = [line for value in mask_values(site) for line in origin(probe, value)]
        yield Found(
            f"{what} are given {fill:.3g} and keep a weight of up to {weight:.2g} (noise {FAINT:.0e})",
            at=place,
            module=site.module,
            related=tuple(related([applied_at(site), *made], "the mask is made or put on here", place)),
        )
        return
    yield Tried(f"measured the weight that {looked} masks leave")


def _places(probe: Probe) -> Iterator[tuple[Recording, Site, torch.Tensor, str]]:
    for site in probe.sites_of("causal"):
        if causal_form(probe, site) == "weak":
            yield (
                probe.base.record,
                site,
                later(*site.shape[1:], device=site.weights.device),
                "later positions",
            )
    try:
        for sight in padded(probe).sights:
            if sight.form == "weak" and sight.pad_keys is not None and sight.pad_queries is not None:
                places = sight.pad_keys[:, None, :] & ~sight.pad_queries[:, :, None]
                yield padded(probe).run.record, sight.site, places & sight.region, "padded keys"
    except NotApplicable:
        return


def _where(probe: Probe, record: Recording, site: Site) -> Place | None:
    """The line that chose the number: where zeros and ones became what is added, or the filling line."""
    for op in site.path:
        if op.name.rstrip("_") in {"masked_fill", "where"} or (
            op.name.rstrip("_") == "mul" and any(two_valued(v.tensor) and not v.trained for v in op.inputs)
        ):
            return op.place
    for value in mask_values(site):
        for each in sorted(record.ancestors([value]), key=lambda v: -v.index):
            if each.op is not None and each.op.name.rstrip("_") in {"mul", "masked_fill", "where"}:
                return each.op.place
    return applied_at(site)
