"""Pad some rows and look at what each attention hides: padding must be hidden as keys, not as queries."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from headwise.doctor.blame import applied_at, related
from headwise.doctor.check import Found, Place, Tried, check
from headwise.doctor.mask_lines import made_at, mask_values, two_valued
from headwise.doctor.padded import padded
from headwise.doctor.padding import Sight
from headwise.doctor.probe import Probe


@check(
    id="HW108",
    title="The padding mask lies along the queries instead of the keys",
    why="Pad queries, which nobody reads, see nothing, and real tokens go on reading padding.",
    fix="Give the mask the shape [batch, 1, 1, keys]: mask[:, None, None, :], not mask[:, None, :, None].",
    needs={"sites", "padding"},
    explains={
        "padding-attended", "padding-pooled", "cross-mask-missing", "cross-mask-wrong",
        "batch-changes-answer", "left-padding-changes-answer", "fully-masked-row-nan", "first-nan",
    },
    quick=True,
)  # fmt: skip
def mask_wrong_axis(probe: Probe) -> Iterator[Found | Tried]:
    sights = padded(probe).sights
    bad = [sight for sight in sights if sight.form == "wrong-axis"]
    if not bad:
        yield Tried(f"looked at what {len(sights)} attentions hide of padded rows")
        return
    shaped, made = _shaped(probe, bad[0])
    applied = applied_at(bad[0].site)
    place = shaped or made or applied
    yield Found(
        f"in {len(bad)} of {len(sights)} attentions the rows of padded queries are hidden as a whole, "
        "while real queries see every padded key",
        at=place,
        module=bad[0].site.module,
        related=tuple(related([applied, made], "the mask is put on or made here", place)),
    )


def _shaped(probe: Probe, sight: Sight) -> tuple[Place | None, Place | None]:
    """Where the mask got the axis that lies along the queries, and where it was made."""
    record = sight.padded.run.record
    masks = mask_values(sight.site)
    pads = sight.padded.pads.get(sight.query_stream)
    count = pads.shape[1] if pads is not None else sight.site.shape[1]

    def along_queries(tensor: Tensor) -> bool:
        # axes of one behind the time axis, or a key axis along which nothing changes
        if tensor.dim() < 2 or not two_valued(tensor) or tensor.shape[-2] != count:
            return False
        return tensor.shape[-1] == 1 or (bool((tensor == tensor[..., :1]).all()) and tensor.dim() > 2)

    return made_at(probe, record, masks, along_queries)[1], made_at(probe, record, masks, two_valued)[1]
