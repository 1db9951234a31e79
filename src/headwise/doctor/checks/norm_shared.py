"""Does one norm, with one gain, serve several sub-layers whose own weights differ?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, constructed, made_places, related
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.flow import weight_name, weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.norms import Norm, carried, norms
from headwise.doctor.probe import Probe

REACH = 60


@check(
    id="HW405",
    title="One norm serves several sub-layers",
    why="One gain and bias must suit streams of different size: each sub-layer pulls it its own way.",
    fix="Construct a norm for each place that normalises; share one only where the whole layer is shared.",
    severity="warning",
    needs={"sites"},
)
def norm_shared(probe: Probe) -> Iterator[Found | Tried]:
    found = blocks(probe)
    by_gain: dict[str, list[Norm]] = {}
    for norm in norms(probe):
        for gain in norm.gains[:1]:
            by_gain.setdefault(gain, []).append(norm)
    if not by_gain:
        raise NotApplicable("no norm with learned gains was recognised")
    for gain, uses in by_gain.items():
        pair = _apart(found, uses)
        if pair is None:
            continue
        one, other = pair
        leaf = next((v for v in probe.base.record.values if v.name == f"parameter {gain}"), None)
        made = made_places(probe, leaf) if leaf is not None else []
        place = constructed(probe, gain.rpartition(".")[0]) or next(iter(made), None) or one.place
        count = len({norm.entered for norm in uses})
        yield Found(
            f"{gain} normalises {count} different values: what {_names(found, one)} reads and what "
            f"{_names(found, other)} reads, whose weights are not shared",
            at=place,
            module=gain.rpartition(".")[0],
            related=tuple(related([*callers(other.op)[:1], *callers(one.op)], "and is applied here", place)),
        )
        return
    yield Tried(f"compared where each of {len(by_gain)} gains is used")


def _apart(found: Blocks, uses: list[Norm]) -> tuple[Norm, Norm] | None:
    """Two uses with other weights before them and other weights after them: not one layer used again."""
    for place, one in enumerate(uses):
        for other in uses[place + 1 :]:
            if one.entered is other.entered:
                continue
            after = _after(found, one), _after(found, other)
            before = _before(found, one), _before(found, other)
            if (
                after[0]
                and after[1]
                and not after[0] & after[1]
                and before[0] != before[1]
                and (before[0] | before[1])
            ):
                return one, other
    return None


def _after(found: Blocks, norm: Norm) -> set[str]:
    """The weights of the products that read a norm's result."""
    return {weight_name(op) for op, _ in found.meets(norm.out) if weight_of(op) is not None} - {""}


def _before(found: Blocks, norm: Norm) -> set[str]:
    """The weights of the products whose results, moved and summed, a norm reads."""
    names: set[str] = set()
    todo, seen = [norm.entered], set[Value]()
    while todo and len(seen) < REACH:
        value = todo.pop()
        op: Op | None = value.op
        if value in seen or op is None:
            continue
        seen.add(value)
        if weight_of(op) is not None:
            names.add(weight_name(op))
        elif value not in found.by_out and (carried(op) is not None or op.pointwise or op.name == "cat"):
            todo.extend(v for v in op.inputs if v.sources and v.tensor.is_floating_point())
    return names


def _names(found: Blocks, norm: Norm) -> str:
    after = sorted(_after(found, norm))
    return after[0] + (" (and others)" if len(after) > 1 else "")
