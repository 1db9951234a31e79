"""Mark each projected vector: where a query can look at its own position only, heads are its keys."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.heads import CONSEQUENCES, Heads, heads
from headwise.doctor.probe import Probe


@check(
    id="HW208",
    title="Heads attend to heads: the sequence axis stands where heads belong",
    why="Each position mixes its own heads and never sees another position: there is no context at all.",
    fix="Transpose [B, T, H, Dh] to [B, H, T, Dh] before the product or the fused kernel, and back after it.",
    needs={"sites"},
    explains={*CONSEQUENCES, "heads-scrambled", "heads-merged-wrong", "wrong-scale", "heads-identical"},
    quick=True,
)
def sequence_heads_swapped(probe: Probe) -> Iterator[Found | Tried]:
    known = [
        each for each in heads(probe) if each.is_known and not each.is_contracted and each.site.shape[1] > 1
    ]
    if not known:
        raise NotApplicable("no attention whose queries come from a projection that could be marked")
    for each in known:
        if not _one_position(each):
            continue
        site = each.site
        slices, queries, keys = site.shape
        yield Found(
            f"in each of {slices} slices all {queries} queries and {keys} keys are pieces of one position's "
            f"vector: attention runs over {keys} heads, not over positions",
            at=site.product.place,
            module=site.module,
            related=(
                *related(
                    [site.q_value.op.place if site.q_value.op else None],
                    "the queries come from here",
                    site.product.place,
                ),
                *related(callers(site.product)[1:3], "called from here", site.product.place),
            ),
        )
        return
    yield Tried(
        f"marked every projected vector of {len(known)} attention(s), and found several in each slice"
    )


def _one_position(each: Heads) -> bool:
    """Are queries and keys of a slice one position's (the same for both), and other slices' another's?"""
    q, k = each.q_from % each.size, each.k_from % each.size
    if bool((each.q_from < 0).any()) or bool((each.k_from < 0).any()):
        return False
    owner = q[:, :1, :1]
    alone = bool((q == owner).all()) and bool((k == owner).all())
    return alone and bool((owner != owner[:1]).any()) and each.of["q"][0].count > each.site.shape[1]
