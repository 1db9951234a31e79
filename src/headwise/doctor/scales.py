"""The factor between q k^T, as projected, and the softmax, measured by replay rather than read from the code.

Rotations keep lengths and norms do not, so it does not matter where a factor stands: on the queries before
they are rotated, in a fused kernel, after the product. Where there is no one constant (normalised queries, a
learned temperature, relative terms that depend on the data) there is nothing to measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.doctor.heads import Heads, Projection
from headwise.doctor.positions import LOOKUPS
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, constant
from headwise.doctor.trace import Op, Value

NEAR = 0.01  # how close a factor must be to a known one


@dataclass(frozen=True, eq=False)
class Gauge:
    """factor: of the scores. steps: what multiplies by a constant, in order; a fused pair is one."""

    factor: float
    steps: tuple[tuple[Op, float], ...]


def gauge(probe: Probe, each: Heads) -> Gauge | None:
    """The constant factor of a site's scores, None where there is no one constant."""
    return probe.memo(f"gauge {each.site.index}", lambda: _gauge(probe, each))


def _gauge(probe: Probe, each: Heads) -> Gauge | None:
    site = each.site
    if (
        not each.of["q"]
        or not each.of["k"]
        or not each.is_known
        or each.is_contracted
        or site.has_learned_scale
    ):
        return None
    if any(
        _is_learned(probe, each.of[name], value) for name, value in (("q", site.q_value), ("k", site.k_value))
    ):
        return None
    if any(_is_relative(op, site) for op in site.path):
        return None
    inner = _slope(probe, site)
    outer = _gains(probe, [p.out for name in "qk" for p in each.of[name]], site, signs=True)
    if inner is None or outer is None:
        return None
    return Gauge(inner * outer[0] * outer[1], _steps(probe, each))


def spread(probe: Probe, each: Heads) -> float | None:
    """How far the scores reach against what values of the same inputs do: 1/sqrt(d_head) where all is usual.

    A model that leaves the factor out and draws its queries smaller (T5) comes to the same.
    """
    site = each.site
    measured = gauge(probe, each)
    if measured is None or not each.of["v"]:
        return None
    starts = [p.x for name in "qkv" for p in each.of[name]]
    found = _gains(probe, starts, site, signs=False)
    inner = _slope(probe, site)
    if found is None or inner is None or found[2] == 0:
        return None
    return inner * found[0] * found[1] / found[2] ** 2


@torch.no_grad()
def _slope(probe: Probe, site: Site) -> float | None:
    """How much the scores move for each unit that the product moves."""
    start = site.product.out
    step = 1e-3 * float(start.tensor.double().square().mean().sqrt() or 1.0)
    (after,) = probe.base.record.replay({start: start.tensor + step}, [site.scores_value])
    slopes = (Site.take(after, site.weights_at) - site.scores).double() / step
    seen = slopes[site.allowed & torch.isfinite(slopes)]
    if not seen.numel():
        return None
    middle = float(seen.median())
    if bool(((seen - middle).abs() > 1e-2 * abs(middle)).any()):
        return None
    alpha = float(site.product.kwargs.get("alpha", 1)) if site.product.name in {"baddbmm", "addmm"} else 1.0
    return middle * alpha


@torch.no_grad()
def _gains(
    probe: Probe, starts: Sequence[Value], site: Site, signs: bool
) -> tuple[float, float, float] | None:
    """How far queries, keys and values move when these values move by one; None where it is no stretch.

    signs: every element by plus or minus one, under which a rotation keeps each length exactly.
    """
    generator = torch.Generator().manual_seed(0)
    once: dict[Value, Tensor] = {}
    for value in dict.fromkeys(starts):
        drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        once[value] = (drawn.sign() if signs else drawn).to(value.tensor)
    wanted = [site.q_value, site.k_value, site.v_value]
    record = probe.base.record
    one = record.replay({v: v.tensor + d for v, d in once.items()}, wanted)
    two = record.replay({v: v.tensor + 2 * d for v, d in once.items()}, wanted)
    gains: list[float] = []
    for place, (value, at) in enumerate(zip(wanted, (site.q_at, site.k_at, site.v_at), strict=True)):
        first = Site.take(one[place] - value.tensor, at).double()
        second = Site.take(two[place] - value.tensor, at).double()
        lengths = first.square().mean(-1).sqrt()
        lengths = lengths[lengths > 0]
        if place < 2:
            gap = float((second - 2 * first).abs().max())
            if not lengths.numel() or gap > 1e-4 * float(first.abs().max()):
                return None
            if signs and float(lengths.max() - lengths.min()) > 1e-3 * float(lengths.mean()):
                return None
        gains.append(float(lengths.square().mean().sqrt()) if lengths.numel() else 0.0)
    return gains[0], gains[1], gains[2]


def _between(probe: Probe, found: Sequence[Projection], end: Value) -> list[Op]:
    return probe.base.record.between([p.out for p in found], [end])


def _is_learned(probe: Probe, found: Sequence[Projection], end: Value) -> bool:
    """Is an operand multiplied by something trained on its way from the projection?"""
    return any(
        op.name.rstrip("_") in {"mul", "div"} and any(v.trained and not v.sources for v in op.inputs)
        for op in _between(probe, found, end)
    )


def _is_relative(op: Op, site: Site) -> bool:
    """Does this step add a term that is itself computed from the data by weights (relative positions)?"""
    if op.name.rstrip("_") not in {"add", "sub"}:
        return False
    line = {site.product.out, *(out for each in site.path for out in each.outputs)}
    return any(v not in line and v.trained and _tells_tokens(v) for v in op.inputs)


def _tells_tokens(value: Value) -> bool:
    """Are its numbers computed from the inputs? A mask from the inputs only chooses which of them stay."""
    todo, seen = [value], {value}
    while todo:
        value = todo.pop()
        op = value.op
        if op is None or (op.name in LOOKUPS and op.inputs[-1].sources):
            if value.sources:
                return True
            continue
        wide = [v for v in op.inputs if v.tensor.is_floating_point() and v.sources and v not in seen]
        seen.update(wide)
        todo += wide
    return False


def _steps(probe: Probe, each: Heads) -> tuple[tuple[Op, float], ...]:
    site = each.site
    sides = [
        [(op, f) for op in _between(probe, each.of[name], value) if (f := _factor(op)) is not None]
        for name, value in (("q", site.q_value), ("k", site.k_value))
    ]
    on_q, on_k = sides
    both: list[tuple[Op, float]] = []
    for op, factor in list(on_k):  # the fused kernel multiplies q and k by the root of its scale
        pair = next(
            (q for q in on_q if q[0].place == op.place and math.isclose(q[1], factor, rel_tol=1e-6)), None
        )
        if pair is not None and op.place == site.product.place:
            on_q.remove(pair)
            on_k.remove((op, factor))
            both.append((pair[0], factor * factor))
    after = [(op, f) for op in site.path if (f := _factor(op)) is not None]
    alpha = float(site.product.kwargs.get("alpha", 1))
    after += [(site.product, alpha)] if alpha != 1 else []
    return tuple(sorted([*on_q, *on_k, *both, *after], key=lambda step: step[0].index))


def _factor(op: Op) -> float | None:
    """The constant that an operation multiplies by, None where it does not, or only turns the sign."""
    name = op.name.rstrip("_")
    if name not in {"mul", "div"} or not op.outputs or not op.out.tensor.is_floating_point():
        return None
    held = [number for v in op.inputs[1:] if (number := constant(v)) is not None] or op.numbers()
    if len(held) != 1 or held[0] == 0 or abs(held[0]) == 1:
        return None
    return held[0] if name == "mul" else 1 / held[0]
