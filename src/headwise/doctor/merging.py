"""What becomes of the heads of an attention: the way from their mixed values to the next projection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.doctor.heads import NORMS, Heads, Projection, head_count, heads, marked, numbered, projection_of
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, is_product, matrices
from headwise.doctor.trace import Op, Value


@dataclass(frozen=True, eq=False)
class Way:
    """From the mixed values of a site onwards, through moves and element-wise steps.

    first: what enters the first operation of another kind (a norm, a projection). last: what enters the next
    projection, through norms too; None where there is none. added: the residual sum that is met before it.
    """

    first: Value | None
    last: Projection | None
    added: Op | None
    entered: Value | None


def way_on(site: Site, stream: set[Value]) -> Way:
    """Follow the mixed values of a site; `stream` is what its queries are read from (see read_from)."""
    first: tuple[int, Value] | None = None
    last: tuple[int, Projection] | None = None
    added: tuple[int, Op, Value] | None = None
    seen = {site.mix.out}
    todo = [site.mix.out]
    while todo:
        value = todo.pop(0)
        for op in value.users:
            projection = projection_of(op)
            if projection is not None:
                if projection.x is value:
                    first = min(first or (op.index, value), (op.index, value), key=lambda pair: pair[0])
                    last = min(
                        last or (op.index, projection), (op.index, projection), key=lambda pair: pair[0]
                    )
                continue
            simple = op.moves or op.pointwise or op.name == "update"
            if not simple:
                if first is None or op.index < first[0]:
                    first = (op.index, value)
                if op.name not in NORMS:
                    continue
            if op.name.rstrip("_") == "add" and any(v in stream for v in op.inputs if v is not value):
                if added is None or op.index < added[0]:
                    added = (op.index, op, value)
                continue
            for out in op.outputs:
                if out not in seen:
                    seen.add(out)
                    todo.append(out)
    return Way(
        first[1] if first else None,
        last[1] if last else None,
        added[1] if added else None,
        added[2] if added else None,
    )


def read_from(found: Iterable[Projection]) -> set[Value]:
    """The residual stream that projections read: back from their input through moves, sums and norms only."""
    seen: set[Value] = set()
    todo = [p.x for p in found]
    while todo:
        value = todo.pop()
        if value in seen or not value.tensor.is_floating_point():
            continue
        seen.add(value)
        op = value.op
        if op is None or projection_of(op) is not None or is_product(op):
            continue
        if op.moves or op.pointwise or op.name in NORMS or op.name == "update":
            todo.extend(op.inputs)
    return seen


@dataclass(eq=False)
class Merged:
    """A site with several heads, or several sites of one head, whose values meet in one place.

    way: of the first site.
    """

    members: tuple[Heads, ...]
    way: Way

    @property
    def site(self) -> Site:
        return self.members[0].site

    def count(self, probe: Probe) -> int:
        """All heads that meet."""
        return sum(head_count(probe, each.site) for each in self.members)

    @property
    def end(self) -> tuple[Value, int] | None:
        """What enters the next projection (where none follows, the residual sum), and its feature axis."""
        if self.way.last is not None:
            return self.way.last.x, self.way.last.axis
        return (self.way.entered, -1) if self.way.entered is not None else None


def merged(probe: Probe) -> list[Merged]:
    """The heads of the base run by the place where they meet."""
    return probe.memo("merged", lambda: _merged(probe))


def _merged(probe: Probe) -> list[Merged]:
    groups: dict[object, list[tuple[Heads, Way]]] = {}
    for each in heads(probe):
        way = way_on(each.site, read_from(each.of["q"]))
        key = way.last.op if way.last is not None else way.added or each.site.mix
        groups.setdefault(key, []).append((each, way))
    return [Merged(tuple(each for each, _ in group), group[0][1]) for group in groups.values()]


def like_mixed(site: Site, marks: Tensor) -> Tensor:
    """Marks of [N, Tq] as marks of the recorded output of the product with the values."""
    shape = site.mix.out.shape
    lead = (1,) * (3 - len(shape)) + shape
    if marks.shape[0] > lead[0]:  # heads that share values lie below one another there
        marks = marks.reshape(lead[0], -1)
    wide = marks[:, :, None] if matrices(site.mix)[1] is site.v_value else marks[:, None, :]
    return wide.expand(lead).reshape(shape)


def times(each: Heads) -> Tensor:
    """[N, Tq] the projected vector that each query comes from: row and time in one number."""
    return each.q_from.amax(-1) % each.size


def ranks(probe: Probe, each: Heads) -> Tensor:
    """[N] which head of its row each slice is."""
    rows = probe.site_rows(each.site)
    if bool((rows < 0).any()):
        rows = torch.arange(len(rows), device=rows.device) // head_count(probe, each.site)
    ranks = torch.zeros_like(rows)
    for row in range(int(rows.max()) + 1):
        mine = torch.nonzero(rows == row).flatten()
        ranks[mine] = torch.arange(len(mine), device=mine.device)
    return ranks


def times_in(probe: Probe, each: Heads, way: Way) -> list[tuple[Value, int, Tensor]]:
    """The time of each element of what a site's heads become: (value, feature axis, marks)."""
    ends = [(way.first, way.last.axis if way.last is not None and way.last.x is way.first else -1)]
    if way.last is not None:
        ends.append((way.last.x, way.last.axis))
    if way.entered is not None:
        ends.append((way.entered, -1))
    wanted = {value: axis for value, axis in ends if value is not None}
    marks = {each.site.mix.out: like_mixed(each.site, times(each))}
    codes = marked(probe.base.record, marks, list(wanted), probe.eps)
    return [(value, axis, code) for (value, axis), code in zip(wanted.items(), codes, strict=True)]


@torch.no_grad()
def shares(probe: Probe, group: Merged, value: Value, axis: int) -> Tensor:
    """[heads, features] how strongly each head moves each feature of a value, as a share of the strongest.

    Only elements that all heads move count: features that heads reach at different positions are not shared.
    """
    record = probe.base.record
    generator = torch.Generator().manual_seed(0)
    moves: list[Tensor] = []
    for each in group.members:
        start = each.site.mix.out
        size = float(start.tensor.double().square().mean().sqrt()) or 1.0
        noise = torch.randn(start.shape, generator=generator, dtype=torch.float64).to(start.tensor) * size
        rank = ranks(probe, each)
        for head in range(int(rank.max()) + 1):
            mine = torch.where(rank == head, 1, 0)
            where = like_mixed(each.site, mine[:, None].expand(each.site.shape[:2]))
            (after,) = record.replay({start: start.tensor + noise * where.to(noise)}, [value])
            moved = (after - value.tensor).double().movedim(axis, -1)
            moves.append(moved.reshape(-1, moved.shape[-1]))
    table = torch.stack(moves)
    table = table * (table != 0).all(0)
    strength = table.square().mean(1).sqrt()
    return strength / strength.amax(0).clamp_min(1e-300)


def vector_times(value: Value, axis: int, marks: Tensor) -> Tensor:
    """For each vector of a value along its features: how many times its elements come from (0: not known)."""
    at = numbered(value.tensor, axis).reshape(-1)
    flat = marks.reshape(-1)
    at, flat = at[flat >= 0], flat[flat >= 0]
    if not flat.numel():
        return flat.new_zeros(0)
    most = int(flat.max()) + 1
    pairs = (at * most + flat).sort().values
    fresh = torch.ones_like(pairs, dtype=torch.bool)
    fresh[1:] = pairs[1:] != pairs[:-1]
    return torch.bincount(pairs[fresh] // most)
