"""How heads are cut out of projections, asked by replay (how they are put together again: `merging`).

Marks are put on the vectors of a projection, and what each element further on descends from is read off:
the marks whose number has bit b set are moved together, then the others. An element that comes from one mark
moves in exactly one of the two, for every b. However the code moves, rotates or normalises, this needs
2 log2(number of marks) replays of a few operations, for all sites at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headwise.doctor.probe import Probe, differs
from headwise.doctor.sites import Site, is_product, matrices
from headwise.doctor.trace import Op, Recording, Value

NONE, SEVERAL = -1, -2
MOST_ELEMENTS = 4_000_000  # of all projections together; beyond it three sites stand for the others
NORMS = {
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_fused_rms_norm", "linalg_vector_norm",
    "norm", "mean", "sum", "var", "var_mean", "std", "amax",
}  # fmt: skip

# What a fault in the cutting or mixing of heads brings about: rows, times and heads are confused.
CONSEQUENCES = frozenset({
    "batch-mixed", "causal-leak", "causal-missing-in-one-layer", "causal-off-by-one",
    "causal-mask-in-encoder", "mask-inverted", "mask-after-softmax", "mask-wrong-axis",
    "mask-excludes-self", "mask-not-forwarded", "fully-masked-row-nan", "padding-attended",
    "padding-pooled", "cross-mask-missing", "cross-mask-wrong", "positions-missing",
    "positions-on-batch-axis", "rope-wrong", "cache-position-wrong", "cache-mismatch",
    "left-padding-changes-answer", "batch-changes-answer", "cannot-memorise", "attention-collapsed",
    "unused-parameters", "depth-unstable",
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Projection:
    """A product with weights, or a convolution: x in, out of `op`, features along `axis` there."""

    op: Op
    x: Value
    weight: Value
    axis: int

    @property
    def out(self) -> Value:
        return self.op.out

    @property
    def count(self) -> int:
        """How many vectors it gives: rows times positions."""
        return self.out.tensor.numel() // max(1, self.out.shape[self.axis])

    def vectors(self) -> Tensor:
        """The number of its vector, for each element of the result: all axes but the features', in order."""
        return numbered(self.out.tensor, self.axis)


def numbered(tensor: Tensor, axis: int) -> Tensor:
    """For each element of a tensor the number of the vector along `axis` that it belongs to."""
    rest = list(tensor.shape)
    rest.pop(axis)
    at = torch.arange(math.prod(rest), device=tensor.device).view(rest)
    return at.unsqueeze(axis if axis >= 0 else tensor.dim() + axis).expand(tensor.shape)


def projection_of(op: Op) -> Projection | None:
    """The operation as a projection; None where no factor is a trained weight."""
    if op.name == "convolution" and op.inputs[1].trained and not op.inputs[1].sources:
        return Projection(op, op.inputs[0], op.inputs[1], 1)
    if not is_product(op) or op.name in {"mv", "addmv"} or not op.outputs:
        return None
    left, right = matrices(op)
    if right.trained and not right.sources:
        return Projection(op, left, right, -1)
    if left.trained and not left.sources:
        return Projection(op, right, left, -2)
    return None


def projections(value: Value) -> tuple[Projection, ...]:
    """The nearest projections that a value descends from: one as a rule, two where parts are put together."""
    found: dict[Value, Projection] = {}
    seen = {value}
    todo = [value]
    while todo:
        op = todo.pop().op
        if op is None:
            continue
        projection = projection_of(op)
        if projection is not None:
            found[projection.out] = projection
            continue
        if is_product(op) and all(v.sources for v in matrices(op)):
            continue
        for each in op.inputs:
            if each not in seen and each.tensor.is_floating_point() and (each.sources or each.trained):
                seen.add(each)
                todo.append(each)
    return tuple(found[key] for key in sorted(found, key=lambda v: v.index))


@torch.no_grad()
def marked(
    record: Recording, marks: Mapping[Value, Tensor], wanted: Sequence[Value], eps: float
) -> list[Tensor]:
    """The mark that each element of the wanted values descends from; NONE, or SEVERAL, where it is not one.

    marks: a number from 0 for each element of the values to start from (NONE: left alone). Elements that
    share a number are one. Nothing before the marked values is run again.
    """
    top = max((int(mark.max()) for mark in marks.values() if mark.numel()), default=0)
    generator = torch.Generator().manual_seed(0)
    noise: dict[Value, Tensor] = {}
    for value, mark in marks.items():
        own = value.tensor.detach().double()
        size = float(own[torch.isfinite(own)].square().mean().sqrt()) if own.numel() else 1.0
        drawn = torch.randn(mark.shape, generator=generator, dtype=torch.float64) * (size or 1.0)
        noise[value] = drawn.to(value.tensor).masked_fill(mark.to(value.tensor.device) < 0, 0)
    codes = [torch.zeros_like(value.tensor, dtype=torch.long) for value in wanted]
    several = [torch.zeros_like(code, dtype=torch.bool) for code in codes]
    untouched = [torch.zeros_like(code, dtype=torch.bool) for code in codes]
    for bit in range(max(1, top.bit_length())):
        moved: list[list[Tensor]] = []
        for side in (1, 0):
            changes = {
                value: value.tensor + noise[value] * ((mark >> bit & 1) == side).to(value.tensor)
                for value, mark in marks.items()
            }
            after = record.replay(changes, wanted)
            moved.append([differs(v.tensor, new, eps) for v, new in zip(wanted, after, strict=True)])
        for place, (one, zero) in enumerate(zip(*moved, strict=True)):
            codes[place] += (one & ~zero).long() << bit
            several[place] |= one & zero
            untouched[place] |= ~(one | zero)
    return [
        code.masked_fill(many, SEVERAL).masked_fill(none, NONE)
        for code, many, none in zip(codes, several, untouched, strict=True)
    ]


@dataclass(eq=False)
class Heads:
    """Of one site: which vector of its projections each element of q, k and v comes from.

    Numbers are slot * `size` + vector, slots telling the projections of one operand apart.
    """

    site: Site
    size: int
    slots: dict[Value, int]
    q_from: Tensor
    k_from: Tensor
    v_from: Tensor
    of: dict[str, tuple[Projection, ...]] = field(default_factory=lambda: {})

    def came(self, name: str) -> Tensor:
        """[N, T, Dh] the marks of operand "q", "k" or "v"."""
        return {"q": self.q_from, "k": self.k_from, "v": self.v_from}[name]

    @property
    def is_known(self) -> bool:
        """Does each query vector come from one vector of a projection?"""
        first = self.q_from.amin(-1)
        return bool((first >= 0).all()) and bool(
            (self.q_from % self.size).amax(-1).eq(first % self.size).all()
        )

    @property
    def is_contracted(self) -> bool:
        """Are several heads mixed with their values in one sum (an einsum that drops the head axis)?"""
        rows, columns = (1, 1, *self.site.product.out.shape)[-2:]
        batch = self.site.raw_at // (rows * columns)
        return bool((batch != batch[..., :1]).any())


def heads(probe: Probe) -> list[Heads]:
    """Each site's heads (for a very large model: the first, middle and last site's)."""
    return probe.memo("heads", lambda: _heads(probe))


def _heads(probe: Probe) -> list[Heads]:
    sites = probe.sites
    of = {
        site: {"q": projections(site.q_value), "k": projections(site.k_value), "v": projections(site.v_value)}
        for site in sites
    }
    total = sum(p.out.tensor.numel() for each in of.values() for ps in each.values() for p in ps)
    if total > MOST_ELEMENTS and len(sites) > 3:
        sites = [sites[0], sites[len(sites) // 2], sites[-1]]
    slots: dict[Value, int] = {}
    for site in sites:
        for found in of[site].values():
            taken = {slots[p.out] for p in found if p.out in slots}
            for p in found:
                if p.out not in slots:
                    slots[p.out] = next(n for n in range(len(found) + len(taken) + 1) if n not in taken)
                    taken.add(slots[p.out])
    used = {p.out: p for site in sites for found in of[site].values() for p in found}
    size = max((p.count for p in used.values()), default=1)
    marks = {value: p.vectors() + slots[value] * size for value, p in used.items()}
    wanted = list(dict.fromkeys(v for site in sites for v in (site.q_value, site.k_value, site.v_value)))
    codes = dict(zip(wanted, marked(probe.base.record, marks, wanted, probe.eps), strict=True))
    return [
        Heads(
            site, size, slots,
            Site.take(codes[site.q_value], site.q_at),
            Site.take(codes[site.k_value], site.k_at),
            Site.take(codes[site.v_value], site.v_at),
            of[site],
        )
        for site in sites
    ]  # fmt: skip


def row_of_vector(probe: Probe, projection: Projection) -> Tensor:
    """[count] the batch row of each vector of a projection, by influence; batch first where rows mix."""
    count, rows = projection.count, probe.batch.rows
    held = probe.rows_seen.get(projection.out.index)
    guess = torch.arange(count, device=projection.out.tensor.device) * rows // max(1, count)
    if held is None:
        return guess
    bits = held.movedim(projection.axis, -1).reshape(count, -1)
    single = torch.stack([(bits == 1 << row).any(-1) for row in range(rows)])
    if not bool((single.sum(0) == 1).all()):
        return guess
    return single.long().argmax(0)


def is_broken(marks: Tensor, row_of: Tensor) -> bool:
    """Has a tensor an axis that runs through times in no order that heads, rows and times could explain?

    Along a sound axis the marks stay the same, or are all different, or (heads folded into the batch) stay
    the same within each row.
    """
    for axis in range(marks.dim()):
        length = marks.shape[axis]
        if length < 2:
            continue
        lines = marks.movedim(axis, -1).reshape(-1, length)
        lines = lines[(lines >= 0).all(-1)]
        if not lines.numel():
            continue
        different = _different(lines)
        rows = _different(row_of[lines % len(row_of)])
        if bool(((different != 1) & (different != length) & (different != rows)).any()):
            return True
    return False


def _different(lines: Tensor) -> Tensor:
    ordered = lines.sort(-1).values
    return 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(-1)


def breaking_op(probe: Probe, starts: Mapping[Value, Tensor], end: Value, row_of: Tensor) -> Op | None:
    """The first operation on the way to `end` that puts marked vectors out of order."""
    record = probe.base.record
    ops = [op for op in record.between(starts, [end]) if op.outputs]
    wanted = [out for op in ops for out in op.outputs if out.tensor.is_floating_point()]
    codes = dict(zip(wanted, marked(record, starts, wanted, probe.eps), strict=True))
    broken = {value: is_broken(code, row_of) for value, code in codes.items()}
    for op in ops:
        if any(broken.get(out) for out in op.outputs) and not any(broken.get(v) for v in op.inputs):
            return op
    return next((op for op in reversed(ops) if op.moves and "view" in op.name), ops[-1] if ops else None)


def results(probe: Probe) -> list[Value]:
    """Every tensor that the base run gave back, the logits among them."""
    from headwise.doctor.adapt import flatten

    output = probe.base.output
    tensors = flatten(output) or flatten(getattr(output, "__dict__", {}))
    found = [probe.base.record.value_of(t) for t in (probe.base.logits, *tensors)]
    return [value for value in found if value is not None]


def in_library(op: Op) -> bool:
    """Was the line of an operation written by a library's authors (a published design), not by the user?"""
    return bool(op.frames) and op.frames[0].library


def head_count(probe: Probe, site: Site) -> int:
    """Heads of a site for each row of the batch."""
    return max(1, site.shape[0] // max(1, probe.batch.rows))


def is_one(probe: Probe, each: Heads, a: str, b: str) -> bool:
    """Are two of "q", "k", "v" the same projection: one weight, one input, and the same numbers?

    Rotations and constant factors that only one of them got are no difference: proportions of lengths stay.
    """
    first, second = each.of[a], each.of[b]
    if len(first) != 1 or len(second) != 1:
        return False
    (p,), (r,) = first, second
    same_weight = p.out is r.out or probe.key(p.weight.tensor) == probe.key(r.weight.tensor)
    one, other = _operand(each.site, a), _operand(each.site, b)
    return same_weight and _same_input(p.x, r.x) and one.shape == other.shape and _proportional(one, other)


def _same_input(x: Value, y: Value) -> bool:
    return x is y or (x.shape == y.shape and torch.equal(x.tensor, y.tensor))


def _operand(site: Site, name: str) -> Tensor:
    return {"q": site.q, "k": site.k, "v": site.v}[name].double()


def _proportional(a: Tensor, b: Tensor) -> bool:
    size = float((a * a).sum().sqrt() * (b * b).sum().sqrt())
    if size == 0:
        return False
    if abs(float((a * b).sum())) > (1 - 1e-9) * size:
        return True
    one, other = a.square().sum(-1).sqrt(), b.square().sum(-1).sqrt()
    if a.shape[-1] < 2 or one.numel() < 6 or min(_spread(one), _spread(other)) < 1e-3:
        return False
    return bool((other > 0).all()) and _spread(one / other) < 1e-6


def _spread(lengths: Tensor) -> float:
    """Deviation as a share of the mean: 0 where all are the same (and where all are 0)."""
    mean = float(lengths.mean())
    return float((lengths - mean).square().mean().sqrt()) / mean if mean else 0.0


def branch(probe: Probe, each: Heads, name: str, others: str) -> Op | None:
    """Where the way of one operand parts from that of the others, after the projection they share."""
    ends = {"q": each.site.q_value, "k": each.site.k_value, "v": each.site.v_value}
    starts = [p.out for p in each.of[name]]
    record = probe.base.record
    theirs = {op for other in others for op in record.between(starts, [ends[other]])}
    own = [op for op in record.between(starts, [ends[name]]) if op not in theirs]
    return own[0] if own else (each.of[name][0].op if each.of[name] else None)
