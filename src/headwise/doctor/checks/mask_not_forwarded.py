"""Look for masks, made or given, on which no output depends, where an attention lacks just that mask."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.mask_lines import triangle
from headwise.doctor.masks import LETS_THROUGH, causal_forms
from headwise.doctor.padded import padded
from headwise.doctor.padding import Padded, Sight
from headwise.doctor.probe import Probe
from headwise.doctor.unused_masks import marks, watch


@check(
    id="HW110",
    title="A mask is made and handed over, and no attention takes it",
    why="The model looks masked to its reader and is not: it sees the future, or padding.",
    fix="Pass the mask on to the attention at the line named here.",
    needs={"sites"},
    explains=LETS_THROUGH,
    quick=True,
)
def mask_not_forwarded(probe: Probe) -> Iterator[Found | Tried]:
    forms = causal_forms(probe)
    bare = [site for site, form in forms if form == "open"]
    if bare:
        seen = watch(probe, probe.batch)
        masks = seen.unused(lambda tensor: triangle(tensor, probe.length))
        if masks:
            place, made = seen.dropped_at(probe, masks, bare[0])
            yield Found(
                f"a causal mask is made and no output depends on it; {len(bare)} of {len(forms)} causal "
                "attentions hide nothing",
                at=place,
                module=bare[0].module,
                related=tuple(
                    related([*made, bare[0].place], "the mask is made here, and missing there", place)
                ),
            )
            return
    pass_, lacking = _lacking(probe)
    for sight in lacking:
        assert pass_ is not None
        seen = watch(probe, pass_.run.batch)
        masks = seen.unused(marks(pass_.pads[sight.key_stream]))
        if masks:
            place, made = seen.dropped_at(probe, masks, sight.site)
            yield Found(
                f"a mask of the padding of the {sight.key_stream} is made or given, and no output depends on "
                f"it; {len(lacking)} of {len(pass_.sights)} attentions see padding",
                at=place,
                module=sight.site.module,
                related=tuple(
                    related([*made, sight.site.place], "the mask is made here, and missing there", place)
                ),
            )
            return
    yield Tried(
        f"compared {len(forms)} causal attentions, and all on padded rows, with the masks made and given"
    )


def _lacking(probe: Probe) -> tuple[Padded | None, list[Sight]]:
    """The attentions that see padding from which real outputs are computed, one for each stream first."""
    try:
        pass_ = padded(probe)
        seen = [sight for sight in pass_.of_form("seen") if pass_.reaches(sight.key_stream)]
    except NotApplicable:
        return None, []
    first = {sight.key_stream: sight for sight in reversed(seen)}
    return pass_, [*first.values(), *(sight for sight in seen if sight not in first.values())][: len(seen)]
