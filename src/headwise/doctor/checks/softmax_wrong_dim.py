"""Along which axis of queries, keys and heads does the softmax run? It must be the keys'."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.heads import CONSEQUENCES, heads
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, matrices


@check(
    id="HW203",
    title="The softmax does not run over the keys",
    why="What a query reads is no mixture of the values: its weights do not sum to one, and queries compete.",
    fix="Take the softmax over the axis of the keys: dim=-1 of scores [.., queries, keys].",
    needs={"sites"},
    explains=set(CONSEQUENCES) | {"causal-leak"},
    quick=True,
)
def softmax_wrong_dim(probe: Probe) -> Iterator[Found | Tried]:
    asked = 0
    for each in heads(probe):
        site = each.site
        axis = _axis(site)
        if axis is None or site.shape[2] < 2 or each.is_contracted:
            continue
        asked += 1
        along = _runs(site, axis)
        if along == {"keys"} or _sums_to_one(site):
            continue
        sums = site.weights.sum(-1)
        kind = "queries" if "queries" in along else "heads" if "slices" in along else "another axis"
        over = f"the {kind}{' and the keys together' if 'keys' in along else ''}"
        yield Found(
            f"the softmax runs over {over}: the weights of a query over its keys sum to between "
            f"{float(sums.min()):.3g} and {float(sums.max()):.3g}, not to 1",
            at=site.place,
            module=site.module,
            related=tuple(
                related(
                    [site.mix.place, *callers(site.softmax)[1:3]], "the weights are used here", site.place
                )
            ),
        )
        return
    if not asked:
        raise NotApplicable("no attention whose softmax has an axis of its own and more than one key")
    yield Tried(f"followed the softmax axis of {asked} attention(s) to its product with the values")


def _axis(site: Site) -> int | None:
    """The axis of a softmax, written by an operation or by hand (the axis that its sum shrinks)."""
    op = site.softmax
    if op.name in {"_softmax", "_safe_softmax"}:
        return int(op.args[1]) % len(op.out.shape)
    top, bottom = (v.shape for v in op.inputs[:2])
    bottom = (1,) * (len(top) - len(bottom)) + bottom
    shrunk = [axis for axis, (a, b) in enumerate(zip(top, bottom, strict=True)) if a != b]
    return shrunk[0] if len(shrunk) == 1 else None


def _runs(site: Site, axis: int) -> set[str]:
    """Which axes of [slices, queries, keys] the softmax's own axis varies along."""
    shape = site.weights_value.shape
    stride = 1
    for size in shape[axis + 1 :]:
        stride *= size
    place: Tensor = site.weights_at // stride % shape[axis]
    names = ("slices", "queries", "keys")
    return {n for n, a in zip(names, range(3), strict=True) if bool((place.narrow(a, 0, 1) != place).any())}


def _sums_to_one(site: Site) -> bool:
    """Do the weights sum to one over the keys where they meet the values (some designs normalise again)?"""
    left, right = matrices(site.mix)
    met = left.tensor if right is site.v_value else right.tensor.mT
    total = met.sum(-1)
    return bool(((total - 1).abs() < 1e-3).all())
