"""Change what stands at the source's pads: the decoder must not look there when the encoder does not."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.mask_lines import own_line
from headwise.doctor.padded import padded
from headwise.doctor.probe import Probe


@check(
    id="HW114",
    title="Cross-attention looks at the source's padding",
    why="The encoder hides padding, the decoder reads it: an answer changes with its neighbours.",
    fix="Give cross-attention the source's padding mask (memory_key_padding_mask in torch's decoder).",
    needs={"encoder-decoder", "sites", "padding", "finite"},
    explains={"batch-changes-answer"},
    quick=True,
)
def cross_mask_missing(probe: Probe) -> Iterator[Found | Tried]:
    pass_ = padded(probe)
    source = probe.source
    if source is None or source.name not in pass_.pads:
        raise NotApplicable("the source cannot be padded: no pad_id, and no input marks its padding")
    cross = [sight for sight in pass_.sights if sight.kind == "cross"]
    bad = [sight for sight in cross if sight.form == "seen"]
    encoder = [sight for sight in pass_.sights if sight.kind == "encoder"]
    share = pass_.reaches(source.name)
    if not bad or not share or any(sight.form not in {"hidden", "nothing", "unclear"} for sight in encoder):
        yield Tried(f"changed the vectors at the source's pads and looked at {len(cross)} cross-attentions")
        return
    site = bad[0].site
    wrong = {sight.site.index for sight in bad}
    place = own_line(site, [each for each in pass_.sites if each.index not in wrong])
    yield Found(
        f"with other vectors at the source's pads {share:.0%} of real outputs moved: {len(bad)} "
        f"of {len(cross)} cross-attentions see them, while {len(encoder)} of the encoder hide them",
        at=place,
        module=site.module,
        related=tuple(related([site.place], "the cross-attention is here", place)),
        severity=None if pass_.in_use else "note",
    )
