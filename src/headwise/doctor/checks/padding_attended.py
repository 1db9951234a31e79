"""Change what stands at the pads: no real output may move, and no real token may look there."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.mask_lines import own_line
from headwise.doctor.padded import padded
from headwise.doctor.probe import Probe


@check(
    id="HW112",
    title="Real tokens look at padding",
    why="An answer depends on how far its row was padded: on the longest of its neighbours in the batch.",
    fix="Hide pad keys in every layer, before softmax: scores.masked_fill(is_pad[:, None, None, :], -inf).",
    needs={"sites", "padding", "finite"},
    explains={
        "padding-pooled", "cross-mask-missing", "batch-changes-answer", "left-padding-changes-answer",
        "positions-count-padding",
    },
    quick=True,
)  # fmt: skip
def padding_attended(probe: Probe) -> Iterator[Found | Tried]:
    pass_ = padded(probe)
    # A model that is only padded here, by us, may never meet padding: that is worth a note, no more.
    severity = None if pass_.in_use else "note"
    for stream in pass_.pads:
        share = pass_.reaches(stream)
        sights = [sight for sight in pass_.sights if sight.key_stream == stream]
        bad = [
            sight for sight in sights if sight.form == "seen" and sight.kind != "cross" and not sight.pools
        ]
        if not share or not bad:
            continue
        index = bad[0].site.index
        site = bad[0].site
        good = [each for each in pass_.sites if each.index not in {sight.site.index for sight in bad}]
        place = own_line(site, good)
        where = f"attention {index + 1} of {len(pass_.sites)}"
        yield Found(
            f"with other vectors at the pads of the {stream} {share:.0%} of the real outputs moved; "
            f"in {where} ({site.module or 'in the model'}), first of {len(bad)}, real tokens see padded keys",
            at=place,
            module=site.module,
            related=tuple(related([site.place], "the attention without padding mask", place)),
            severity=severity,
        )
        return
    yield Tried(f"changed the vectors at the pads ({pass_.what}) of {len(pass_.pads)} streams")
