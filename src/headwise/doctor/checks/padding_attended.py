"""Change what stands at the pads: no real output may move, and no real token may look there."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from headwise.doctor.blame import related
from headwise.doctor.check import Found, Place, Tried, check
from headwise.doctor.mask_lines import made_at, mask_values, own_line, two_valued
from headwise.doctor.masks import hidden
from headwise.doctor.padded import padded
from headwise.doctor.padding import Padded, Sight
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
        place = _too_short(probe, pass_, bad[0]) or own_line(site, good)
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


def _too_short(probe: Probe, pass_: Padded, sight: Sight) -> Place | None:
    """Where a mask was made that hides pads, but not all of them: of lengths that are one too large, say.

    It is told from a window, which hides pads by chance, by being the same for every query.
    """
    site, pads = sight.site, sight.pad_keys
    gone = hidden(site)  # of each head or row, query and key
    if pads is None or not bool((gone == gone[:, :1]).all()):
        return None
    keys = gone[:, 0]
    if not bool(keys[pads].any()) or bool(keys[~pads].any()):
        return None
    length = site.shape[2]

    def marks(tensor: Tensor) -> bool:
        return tensor.dim() >= 2 and tensor.shape[-1] == length and two_valued(tensor)

    return made_at(probe, pass_.run.record, mask_values(site), marks)[1]
