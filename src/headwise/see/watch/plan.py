"""Where in a pass the numbers are that one wants to see: learnt from one recording, found again by counting.

A recording costs much (each operation with its line, each value kept). So one pass is recorded, and what is
to be measured is noted as the number of an operation and of its operand; later passes run the same
operations, and only those numbers are looked at (`taps`). Nothing here depends on the sizes of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.check import Place
from headwise.doctor.flow import data_of, weight_of
from headwise.doctor.graph import Op, Recording, Value
from headwise.doctor.norms import Norm, ask, factors_after, find_norms, like_noise, rms
from headwise.doctor.sites import Site, attention_sites, factor_before
from headwise.see.watch.place import line_of

NORMS = {"layer", "rms", "written"}  # a batch norm in evaluation mode shows its running statistics
REACH = 40
# not counted: whether a factory's result is detached depends on who else holds it (a recording does)
SKIPPED = {torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.lift_fresh.default}


@dataclass(frozen=True)
class Tap:
    """One tensor of a pass: the operation's number, and the operand's (or the result's) among its tensors."""

    op: int
    place: int
    is_result: bool


@dataclass(frozen=True)
class NormTap:
    """A norm: what enters, what leaves (after its gain and bias), and the parameters that are its gain.

    is_even: what leaves it does not depend on the size of what enters, if that is large.
    eps: what it adds to the variance, or to the mean square where has_mean is False.
    """

    name: str
    at: Place | None
    entered: Tap
    out: Tap
    gains: tuple[str, ...]
    is_even: bool = True
    eps: float = 0.0
    has_mean: bool = True


@dataclass(frozen=True)
class Axes:
    """What the axes of a tensor of weights are; those not named run over rows of the batch.

    heads: the axis of heads, None for one head. folded: rows and heads share that axis, "rows" or "heads"
    being the slower one; then num_heads tells them apart.
    """

    queries: int
    keys: int
    heads: int | None = None
    folded: str = ""
    num_heads: int = 1


@dataclass(frozen=True)
class SiteTap:
    """An attention: queries, keys, values, what the softmax reads and gives, and its output projection.

    factors: by which constants queries and keys were multiplied since they were projected.
    """

    name: str
    at: Place | None
    q: Tap
    k: Tap
    v: Tap
    scores: Tap
    weights: Tap
    axes: Axes
    mixed: Tap
    projected: tuple[Tap, Tap] | None = None
    factors: tuple[float, float] = (1.0, 1.0)


@dataclass
class Plan:
    """All there is to see in the passes of one kind: `sequence` are their operations, in order."""

    sequence: tuple[Any, ...]
    norms: tuple[NormTap, ...] = ()
    sites: tuple[SiteTap, ...] = ()
    layers: dict[str, Tap] = field(default_factory=lambda: {})

    def taps(self) -> set[Tap]:
        """Every tensor that is looked at."""
        found = {tap for norm in self.norms for tap in (norm.entered, norm.out)} | set(self.layers.values())
        for site in self.sites:
            found |= {site.q, site.k, site.v, site.scores, site.weights, site.mixed, *(site.projected or ())}
        return found


@torch.no_grad()
def learn(record: Recording, model: nn.Module, layers: Iterable[str]) -> Plan:
    """What there is to see in a recorded pass; layers: paths of the modules whose result is looked at."""
    numbers = _numbers(record)
    plan = Plan(tuple(op.func for op in numbers))
    names = _Names()
    norms: list[NormTap] = []
    for norm in find_norms(record):
        tap = _norm(record, norm, numbers, names)
        if tap is not None:
            norms.append(tap)
    names = _Names()
    sites = [tap for site in attention_sites(record) if (tap := _site(site, numbers, names)) is not None]
    plan.norms, plan.sites = tuple(norms), tuple(sites)
    wanted = set(layers)
    for op in record.ops:
        if op not in numbers or not op.outputs or not op.out.tensor.is_floating_point():
            continue
        for path, _ in op.modules:
            if path in wanted:
                plan.layers[path] = Tap(numbers[op], 0, True)
    return plan


class _Names:
    """Names that tell things apart: the module's path, with the line where one module holds several."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, module: str, at: Place | None) -> str:
        name = module or (f"line {at.line}" if at is not None else "model")
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name} #{count}"


def _numbers(record: Recording) -> dict[Op, int]:
    """By operation: which one of those that are counted it is."""
    ran = (op for op in record.ops if op.name != "update" and op.func not in SKIPPED)
    return {op: number for number, op in enumerate(ran)}


def _tap(value: Value, numbers: dict[Op, int], by: Op | None = None) -> Tap | None:
    """Where a value is to be seen: as an operand of `by`, else as the result of what made it."""
    if by is not None and by in numbers and value in by.inputs:
        return Tap(numbers[by], by.inputs.index(value), False)
    if value.op is not None and value.op in numbers and value in value.op.outputs:
        return Tap(numbers[value.op], value.op.outputs.index(value), True)
    reader = next((op for op in value.users if op in numbers and value in op.inputs), None)
    return Tap(numbers[reader], reader.inputs.index(value), False) if reader is not None else None


def _norm(record: Recording, norm: Norm, numbers: dict[Op, int], names: _Names) -> NormTap | None:
    if norm.kind not in NORMS or not norm.entered.tensor.numel():
        return None
    is_even, has_mean, numbered = True, norm.kind == "layer", norm.op.numbers()
    eps = numbered[-1] if norm.kind != "written" and numbered else 0.0
    if norm.kind == "written":
        noise = like_noise(norm.entered)
        large, larger = (rms(ask(record, norm, factor * noise)) for factor in (1e2, 1e4))
        is_even = 0.5 < larger / max(large, 1e-30) < 2
        if is_even and not 0.5 < large < 2:
            return None  # a division by the length, as in cosine attention
        plain, shifted = (ask(record, norm, noise + shift) for shift in (0.0, 3.0))
        has_mean = rms(shifted - plain) < 0.1 * rms(plain)
        eps = _eps(record, norm, has_mean=has_mean)
    entered, out = _tap(norm.entered, numbers), _tap(_affine(norm), numbers)
    if entered is None or out is None:
        return None
    at = line_of(norm.op)
    return NormTap(names(norm.module, at), at, entered, out, norm.gains, is_even, eps, has_mean)


def _eps(record: Recording, norm: Norm, *, has_mean: bool) -> float:
    """How much a norm written by hand damps what enters it, as the epsilon that would; 0 where little."""
    entered = norm.entered.tensor.detach().float()
    usual, large = (rms(ask(record, norm, factor * norm.entered.tensor)) for factor in (1.0, 1e3))
    share = usual / large if large > 0 else 1.0
    size = float((entered.var(-1, correction=0) if has_mean else entered.square()).mean())
    return size * (share**-2 - 1) if 0 < share < 0.999 else 0.0


def _affine(norm: Norm) -> Value:
    """The norm's result after its own gain and bias, where they are operations of their own."""
    value = norm.out
    factors = factors_after(value)
    for op in factors:
        if op.moves:
            continue
        if not any(v.trained and not v.sources for v in op.inputs):
            break  # a constant, which is no part of it
        value = op.out
    users = [op for op in value.users if op.outputs]
    if len(users) == 1 and users[0].name.rstrip("_") == "add":
        others = [v for v in users[0].inputs if v is not value]
        if others and all(v.trained and not v.sources for v in others):
            value = users[0].out
    return value


def _site(site: Site, numbers: dict[Op, int], names: _Names) -> SiteTap | None:
    axes = _axes(site)
    value = site.weights_value
    reader = site.after[0] if site.after else site.mix
    found = [
        _tap(site.q_value, numbers, site.product),
        _tap(site.k_value, numbers, site.product),
        _tap(site.v_value, numbers, site.mix),
        _tap(site.scores_value, numbers, site.softmax if site.scores_value in site.softmax.inputs else None),
        _tap(value, numbers, reader),
        _tap(site.mix.out, numbers),
    ]
    if axes is None or any(tap is None for tap in found):
        return None
    q, k, v, scores, weights, mixed = (tap for tap in found if tap is not None)
    at = line_of(site.softmax)
    factors = factor_before(site.q_value)[0] or 1.0, factor_before(site.k_value)[0] or 1.0
    projected = _projection(site, numbers)
    name = names(site.module, at)
    return SiteTap(name, at, q, k, v, scores, weights, axes, mixed, projected, factors)


def _axes(site: Site) -> Axes | None:
    """Which axes of the weights run over queries and keys: asked of where their elements lie."""
    shape = site.weights_value.shape
    at = site.weights_at
    if at.numel() == 0 or len(shape) < 2:
        return None
    spots = torch.unravel_index(at, shape)
    queries = [d for d, spot in enumerate(spots) if at.shape[1] > 1 and bool((spot[:, :1] != spot).any())]
    keys = [d for d, spot in enumerate(spots) if at.shape[2] > 1 and bool((spot[:, :, :1] != spot).any())]
    if len(keys) != 1 or len(queries) > 1 or keys == queries:
        return None
    column = keys[0]
    row = queries[0] if queries else next((d for d in reversed(range(len(shape))) if d != column), column)
    return Axes(row, column)


def _projection(site: Site, numbers: dict[Op, int]) -> tuple[Tap, Tap] | None:
    """The product with weights that reads what the heads gave, with moves and gates between."""
    todo, seen = [site.mix.out], {site.mix.out}
    while todo and len(seen) < REACH:
        value = todo.pop(0)
        for op in value.users:
            if not op.outputs:
                continue
            if weight_of(op) is not None:
                read = _tap(data_of(op), numbers, op)
                given = _tap(op.out, numbers)
                return (read, given) if read is not None and given is not None else None
            if op.moves or op.pointwise:
                fresh = [out for out in op.outputs if out not in seen]
                seen.update(fresh)
                todo.extend(fresh)
    return None


def with_heads(axes: Axes, one: Tensor, other: Tensor, rows: int) -> Axes:
    """The axes with that of the heads: it is the one whose length stays when there are other rows.

    one: weights of `rows` rows; other: of three rows of which the third is the first again, so that it shows
    which of a folded axis' slices belong to one head.
    """
    rest = [d for d in range(one.dim()) if d not in (axes.queries, axes.keys)]
    batch = [d for d in rest if one.shape[d] != other.shape[d]]
    still = [d for d in rest if d not in batch and one.shape[d] > 1]
    if len(batch) > 1 or len(still) > 1:
        return axes
    if still:
        return replace(axes, heads=still[0])
    if not batch or one.shape[batch[0]] % rows or one.shape[batch[0]] == rows:
        return axes
    count = one.shape[batch[0]] // rows
    if other.shape[batch[0]] != count * 3:
        return axes
    slices = other.movedim(batch[0], 0)
    by_row, by_head = torch.equal(slices[0], slices[2 * count]), torch.equal(slices[0], slices[2])
    if by_row == by_head:
        return axes
    return replace(axes, heads=batch[0], folded="rows" if by_row else "heads", num_heads=count)
