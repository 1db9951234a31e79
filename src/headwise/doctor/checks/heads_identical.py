"""Compare the scores of one head with those of the others in its row: they must differ."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, made_places, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.heads import Heads, heads
from headwise.doctor.merging import Merged, merged
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.trace import Op, Value

COPIES = {"expand", "repeat", "repeat_interleave", "index_select", "index", "stack", "cat"}


@check(
    id="HW207",
    title="All heads of an attention are the same",
    why="Many heads cost what many heads cost and see what one head sees.",
    fix="Give each head columns of its own in the projections of queries and keys, drawn independently.",
    needs={"sites", "rows"},
    explains={"same-initialisation", "bad-init"},
    quick=True,
)
def heads_identical(probe: Probe) -> Iterator[Found | Tried]:
    asked = 0
    for each in heads(probe):
        site = each.site
        rows = probe.site_rows(site)
        if bool((rows < 0).any()) or each.is_contracted:
            continue
        mates = [torch.nonzero(rows == row).flatten() for row in range(probe.batch.rows)]
        if min(len(m) for m in mates) < 2:
            continue
        asked += 1
        gap = max(float((_pattern(site.raw[m]) - _pattern(site.raw[m])[:1]).abs().max()) for m in mates)
        size = float(_pattern(site.raw).abs().max())
        if site.shape[2] < 2 or not (1e-9 <= size < float("inf")) or not gap <= 1e-5 * size:
            continue
        at = _copied(probe, each)
        yield Found(
            f"the scores of {len(mates[0])} heads differ by at most {gap:.2g} and reach {size:.2g}",
            at=at,
            module=site.module,
            related=tuple(
                related(
                    [site.q_value.op.place if site.q_value.op else None, site.place],
                    "the heads attend here",
                    at,
                )
            ),
        )
        return
    for group in merged(probe):
        if len(group.members) < 2:
            continue
        asked += 1
        if not _one_slice(probe, group):
            continue
        first, second = group.members[0], group.members[1]
        at = second.of["q"][0].op.place
        yield Found(
            f"{len(group.members)} heads have the same scores, from the same part of a wider projection",
            at=at,
            module=second.site.module,
            related=tuple(related([second.site.place, first.site.place], "the heads attend here", at)),
        )
        return
    if not asked:
        raise NotApplicable("no attention with several heads in a row of the batch")
    yield Tried(f"compared the scores of all heads in {asked} attention(s)")


def _one_slice(probe: Probe, group: Merged) -> bool:
    """Do single heads all read the same columns of a projection that has columns for each?

    (A whole layer used for every head is weights-accidentally-shared; layers drawn alike are
    same-initialisation.)
    """
    first = group.members[0]
    for each in group.members:
        if len(each.of["q"]) != 1 or len(each.of["k"]) != 1 or each.site.raw.shape != first.site.raw.shape:
            return False
        projection = each.of["q"][0]
        narrow = projection.out.shape[projection.axis] <= each.site.d_head
        if narrow or probe.key(projection.weight.tensor) != probe.key(first.of["q"][0].weight.tensor):
            return False
        gap = float((_pattern(each.site.raw) - _pattern(first.site.raw)).abs().max())
        if gap > 1e-5 * float(_pattern(first.site.raw).abs().max()):
            return False
    return True


def _pattern(raw: torch.Tensor) -> torch.Tensor:
    """What of the scores the softmax sees: their differences from one key to the next."""
    return raw - raw.mean(-1, keepdim=True)


def _copied(probe: Probe, each: Heads) -> Place | None:
    """Where one head becomes many: a copy on the queries' way, else where repeated weights were made."""
    site: Site = each.site
    starts = [p.out for p in each.of["q"]]
    ops: list[Op] = probe.base.record.between(starts, [site.q_value]) if starts else []
    for op in ops:
        grows = op.outputs and op.out.tensor.numel() > op.inputs[0].tensor.numel()
        if op.name in COPIES and grows and op.place is not None:
            return op.place
    for projection in each.of["q"]:
        leaf: Value = projection.weight
        while leaf.op is not None and leaf.op.moves:
            leaf = leaf.op.inputs[0]
        made = made_places(probe, leaf)
        if made:
            return made[0]
    return callers(ops[-1])[0] if ops and callers(ops[-1]) else site.place
