"""Which ids an embedding really looked up, and where in the input each stood: models shift and permute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from headwise.doctor.batch import Batch, numbers
from headwise.doctor.follow import follow
from headwise.doctor.heads import projections
from headwise.doctor.trace import Op, Recording, Value

NORMS = {"native_layer_norm", "_fused_rms_norm", "native_dropout"}
MARK = 1 << 24  # added to places, so that they are told from ids and from positions


@dataclass(frozen=True, eq=False)
class Lookup:
    """One look into a table. leaf: the input whose ids they are.

    ids: as they were looked up, None where a vector of no id stands; origin: where each stood in the input's
    row, -1 for one that was put in.
    """

    leaf: int
    ids: tuple[int | None, ...]
    origin: tuple[int, ...]
    length: int

    @property
    def is_as_given(self) -> bool:
        return self.origin == tuple(range(self.length))


class Lookups:
    """The looks into tables of a pass over one row, and which of them a value is computed from."""

    def __init__(self, record: Recording, batch: Batch, leaves: Sequence[int]) -> None:
        """leaves: the inputs that hold ids."""
        found: list[Lookup] = []
        seeds: dict[Value, int] = {}
        for op in record.ops:
            index = _index(op)
            lookup = _lookup(record, batch, leaves, index) if index is not None else None
            if lookup is not None:
                seeds[op.out] = 1 << len(found)
                found.append(lookup)
        self._found, self._outs, self._reached = found, list(seeds), reached_from(record, seeds)

    def under(self, value: Value, count: int) -> Lookup | None:
        """The one of so many ids that a value comes from; of several, one in the input's own order."""
        bits = self._reached.get(value, 0)
        fitting = [
            _followed(lookup, out, value)
            for place, (lookup, out) in enumerate(zip(self._found, self._outs, strict=True))
            if bits >> place & 1 and len(lookup.ids) == count
        ]
        return next((lookup for lookup in fitting if lookup.is_as_given), fitting[0] if fitting else None)


def _followed(lookup: Lookup, out: Value, value: Value) -> Lookup:
    """The same in the order in which its vectors reach the projection of a value, where they were moved."""
    ends = {made.x for made in projections(value)}
    count = len(lookup.ids)
    places = torch.arange(1, count + 1, device=out.tensor.device)
    start = places[:, None].expand(count, out.tensor.numel() // count).reshape(out.tensor.shape)
    todo, seen = [(out, start)], {out: start}
    orders: list[list[int]] = []
    while todo:
        held, at = todo.pop()
        if held in ends:
            orders.append(numbers(at.movedim(-1, 0)[0]))
        for op in held.users:
            for made in op.outputs[:1]:
                kept = at if op.name in NORMS and made.shape == held.shape else follow(op, held, at, made)
                if kept is None or made.shape[-1:] != out.shape[-1:]:
                    continue
                if made not in seen:
                    seen[made] = kept
                    todo.append((made, kept))
                elif not torch.equal(seen[made], kept):  # two of its vectors are added
                    return lookup
    if len(orders) != len(ends) or any(len(order) != count or order != orders[0] for order in orders):
        return lookup  # from elsewhere too, or cut: what stands where is not told
    order = [place - 1 for place in orders[0]] if orders else list(range(count))
    if order == list(range(count)):
        return lookup
    ids = tuple(lookup.ids[place] if place >= 0 else None for place in order)
    origin = tuple(lookup.origin[place] if place >= 0 else -1 for place in order)
    return Lookup(lookup.leaf, ids, origin, lookup.length)


def reached_from(record: Recording, seeds: Mapping[Value, int]) -> dict[Value, int]:
    """For each value the bits of all seeds that it is computed from, its own too."""
    bits: dict[Value, int] = {}
    for op in record.ops:
        reached = 0
        for value in op.inputs:
            reached |= bits.get(value, 0)
        for value in op.outputs:
            bits[value] = reached | seeds.get(value, 0)
    return bits


def _index(op: Op) -> Value | None:
    """What a look into a table of parameters reads: nn.Embedding, or table[ids]."""
    if not op.outputs or len(op.inputs) != 2 or not op.inputs[0].trained:
        return None
    table, index = op.inputs
    is_look = op.name == "embedding" or (op.name in {"index", "index_select"} and table.op is None)
    return index if is_look and index.tensor.dtype in {torch.int64, torch.int32} else None


def _lookup(record: Recording, batch: Batch, leaves: Sequence[int], index: Value) -> Lookup | None:
    for leaf in leaves:
        if not index.sources >> leaf & 1:
            continue
        own = next((v for v in record.values if v.op is None and v.sources == 1 << leaf), None)
        if own is None or own.tensor.numel() != batch.leaves[leaf].numel() or own.tensor.dim() > 2:
            continue
        count = own.tensor.numel()
        if own.tensor.dtype not in {torch.int64, torch.int32} or index.tensor.numel() > 4 * count + 64:
            continue
        places = torch.arange(count, device=own.tensor.device).view(own.tensor.shape) + MARK
        try:
            (marked,) = record.replay({own: places.to(own.tensor.dtype)}, [index])
        except (RuntimeError, IndexError, TypeError, ValueError):  # ids that choose among other ids
            continue
        ids, given = numbers(index.tensor), numbers(own.tensor)
        places_found = [mark - MARK for mark in numbers(marked)]
        origin = tuple(
            place if 0 <= place < count and given[place] == id else -1
            for id, place in zip(ids, places_found, strict=True)
        )
        if any(place >= 0 for place in origin):
            return Lookup(leaf, tuple(ids), origin, count)
    return None
