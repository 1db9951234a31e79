"""Queries, keys and values turned by their position: the factors, what they do as matrices, what is wrong.

A rotation is a factor between projection and product that no token moves, another one at each place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.doctor.positions import FACTORS, STEPS, by_content, making_steps, table_behind, varies
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, is_product, matrices
from headwise.doctor.trace import Op, Value

MOST_FEATURES = 512  # one replay each, and only where something is wrong
CARRIERS = {"neg", "_to_copy", "view_as_complex", "view_as_real", "update", "_conj"}


@dataclass(eq=False)
class Turned:
    """A site's operand (queries, keys or values) with the factors that depend on the position.

    factors: each with its multiplication. starts: what the projections gave, where the operand comes from.
    scalars: factors of one number a position (a temperature), which turn nothing.
    astray: waves that differ along another axis than the positions (the heads, the batch).
    """

    site: Site
    operand: Value
    factors: list[tuple[Op, Value]]
    starts: list[Value]
    scalars: list[Value]
    astray: list[tuple[Op, Value]]


def turned(probe: Probe, site: Site, operand: Value) -> Turned:
    """What lies between an operand of the attention product and the projections it comes from."""
    found = Turned(site, operand, [], [], [], [])
    seen: set[Value] = set()
    todo = [operand]
    while todo and len(seen) < STEPS:
        value = todo.pop(0)
        if value in seen or not by_content(probe, value):
            continue
        seen.add(value)
        op = value.op
        if op is None or op.name == "embedding":
            found.starts.append(value)
            continue
        held = [v for v in op.inputs if v.tensor.is_floating_point() or v.tensor.is_complex()]
        content = [v for v in held if by_content(probe, v)]
        others = [v for v in held if v not in content and v.tensor.numel() > 1]
        if is_product(op) or op.name == "convolution":
            if any(v.trained for v in others) or len(content) > 1 or not others:
                found.starts.append(value)
                continue
            found.factors.append((op, others[0]))  # a product with matrices of rotation
        elif op.name in FACTORS and others:
            kind = _by_position(probe, op, others[-1])
            if kind == "turns":
                found.factors.append((op, others[-1]))
            elif kind == "scales":
                found.scalars.append(others[-1])
            elif kind == "astray":
                found.astray.append((op, others[-1]))
        todo.extend(content)
    return found


def _by_position(probe: Probe, op: Op, factor: Value) -> str:
    """How a factor goes with the position.

    "turns" where it tells positions and features apart, "scales" for one number a position, "astray" for
    waves that tell others apart than positions, which lie along an axis of their own; "" for all else.
    """
    try:
        shown = factor.tensor.expand(op.out.shape)
    except RuntimeError:
        return ""
    lengths = {probe.batch.length(stream) for stream in probe.adapted.streams}
    moving = [axis for axis in range(shown.dim()) if varies(shown, axis)]
    times = [axis for axis in moving if shown.shape[axis] in lengths]
    if times:
        return "turns" if len(moving) > len(times) else "scales"
    has_times = any(size > 1 and size in lengths for size in shown.shape)  # patches have another number
    is_wide = len(moving) > 1 and moving[-1] == shown.dim() - 1
    if has_times and is_wide and not factor.trained and _is_wave(probe, factor):
        return "astray"
    return ""


def _is_wave(probe: Probe, factor: Value) -> bool:
    names = {op.name for value in probe.base.record.ancestors([factor]) if (op := value.op) is not None}
    names |= {op.removeprefix("aten.").split(".")[0] for _, op in making_steps(probe, table_behind(factor))}
    return bool(names & {"sin", "cos", "polar"})


def rotations(probe: Probe, site: Site) -> tuple[Turned, Turned, Turned]:
    """What turns the queries, the keys and the values of a site."""
    return probe.memo(
        f"positions.rotations.{site.index}",
        lambda: tuple(turned(probe, site, v) for v in (site.q_value, site.k_value, site.v_value)),
    )


def with_same_token(probe: Probe, site: Site) -> tuple[Tensor, Tensor, Tensor] | None:
    """q, k and v [N, T, Dh] of a site if every position held the same token: only the position speaks.

    None where the projections are not found, or hold no place for each position.
    """
    found = rotations(probe, site)
    changes: dict[Value, Tensor] = {}
    for each in found:
        for start in each.starts:
            if start in changes:
                continue
            same = _same_everywhere(probe, start)
            if same is None:
                return None
            changes[start] = same
        for scalar in each.scalars:
            changes[scalar] = torch.ones_like(scalar.tensor)
    if not changes:
        return None
    q, k, v = probe.base.record.replay(changes, [site.q_value, site.k_value, site.v_value])
    return Site.take(q, site.q_at), Site.take(k, site.k_at), Site.take(v, site.v_at)


def _same_everywhere(probe: Probe, start: Value) -> Tensor | None:
    """A projection's result with one and the same vector (drawn, not taken) at every position."""
    op = start.op
    if op is None or not is_product(op):
        return None
    left, _ = matrices(op)
    features = -1 if by_content(probe, left) else -2
    shape = [1] * start.tensor.dim()
    shape[features] = start.shape[features]
    if start.tensor.dim() == 3:
        shape[0] = start.shape[0] if start.shape[0] != probe.batch.rows else 1  # one matrix a head, or a row
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return drawn.to(start.tensor).expand(start.shape).contiguous()


@dataclass(frozen=True)
class Wrong:
    """What is wrong, and in which of three places it was written: "tables", "partner", "product"."""

    what: str
    where: str


def matrices_of(probe: Probe, turned: Turned, at: Tensor) -> Tensor | None:
    """[T, Dh, Dh] what an operand is at each position for each feature that enters, of the first head.

    None where what enters is no single tensor, or its features are too many.
    """
    start = _entered(turned)
    if (
        start is None
        or start.shape[-1] > MOST_FEATURES
        or (op := start.op) is None
        or (is_product(op) and op.inputs[-1].sources)
    ):
        return None
    columns: list[Tensor] = []
    for feature in range(start.shape[-1]):
        one = start.tensor.new_zeros(start.shape[-1])
        one[feature] = 1
        (out,) = probe.base.record.replay({start: one.expand(start.shape).contiguous()}, [turned.operand])
        columns.append(Site.take(out, at)[0])
    held = torch.stack(columns, -1)  # shaped [T, Dh, F]
    felt = (held.abs() > 1e-9).any(0).any(0)
    held = held[:, :, felt]
    if held.shape[1] != held.shape[2]:
        return None
    first = held[0].abs().argmax(0)  # at position 0 nothing is turned: each feature in its place
    if bool((first.sort().values == torch.arange(len(first), device=first.device)).all()):
        held = held[:, first]
    return held


def _entered(turned: Turned) -> Value | None:
    """The one value that all factors are multiplied with, behind moves and signs."""
    found: set[Value] = set()
    for op, factor in turned.factors:
        value = next(v for v in op.inputs if v is not factor)
        while value.op is not None and (value.op.moves or value.op.name in CARRIERS):
            inputs = {v for v in value.op.inputs if v.sources}
            if value.op.name == "cat":
                value = next(iter(value.op.inputs))
            elif len(inputs) == 1:
                value = inputs.pop()
            else:
                break
        found.add(value)
    return found.pop() if len(found) == 1 else None


def fault(held: Tensor) -> Wrong | None:
    """Why matrices [T, Dh, Dh] turn no vector: they change its length with the position."""
    grams = held.mT @ held
    sizes = grams.diagonal(dim1=-2, dim2=-1).mean(-1)
    unit = torch.eye(held.shape[-1], dtype=held.dtype, device=held.device)
    if float((grams / sizes[:, None, None] - unit).abs().max()) < 1e-2:
        return None
    place = int((held - held[:1]).abs().flatten(1).amax(1).argmax())
    turn = held[place]
    own = turn.diagonal()
    off = turn - own.diag()
    some = off.abs() > 1e-6
    if not bool((some == some.T).all()):
        return Wrong("a feature is turned with one that is not turned with it", "partner")
    pairs = some.triu(1).nonzero()
    if len(pairs) == 0:
        return Wrong("features are scaled by position, and never mixed with a partner", "product")
    a, b = pairs[:, 0], pairs[:, 1]
    if float((off[a, b] * off[b, a] > 0).double().mean()) > 0.5:
        return Wrong("both features of a pair are mixed in with the same sign (one needs a minus)", "partner")
    if float((own[a] - own[b]).abs().max()) > 1e-3 or float((off[a, b] + off[b, a]).abs().max()) > 1e-3:
        return Wrong(
            "the two features of a pair are turned by different angles: tables and pairs do not match",
            "tables",
        )
    return Wrong("the two factors of a pair are no cosine and sine of one angle", "product")


def partner_op(turned: Turned) -> Op | None:
    """The operation that puts each feature's partner in its place (rotate_half), where there is one."""
    for op, factor in turned.factors:
        value = next(v for v in op.inputs if v is not factor)
        for _ in range(6):
            made = value.op
            if made is None:
                break
            if made.name in {"cat", "stack", "roll", "flip"}:
                return made
            value = made.inputs[0]
    return None
