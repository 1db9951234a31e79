"""What turning by position does to a vector, as matrices, and what is wrong with those that do not turn it rightly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.doctor.positions import Turned
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, is_product
from headwise.doctor.trace import Op, Value

MOST_FEATURES = 512  # one replay each, and only where something is wrong
CARRIERS = {"neg", "_to_copy", "view_as_complex", "view_as_real", "update", "_conj"}


@dataclass(frozen=True)
class Wrong:
    """What is wrong, in words, and which of the three places it was written in: "tables", "partner", "product"."""

    what: str
    where: str


def matrices_of(probe: Probe, turned: Turned, at: Tensor) -> Tensor | None:
    """[T, Dh, Dh] what an operand is at each position for each feature that enters, of the first head.

    None where what enters is no single tensor, or its features are too many.
    """
    start = _entered(turned)
    if start is None or start.shape[-1] > MOST_FEATURES or (op := start.op) is None or is_product(op) and op.inputs[-1].sources:
        return None
    columns: list[Tensor] = []
    for feature in range(start.shape[-1]):
        one = torch.zeros(start.shape[-1], dtype=start.tensor.dtype)
        one[feature] = 1
        (out,) = probe.base.record.replay({start: one.expand(start.shape).contiguous()}, [turned.operand])
        columns.append(Site.take(out, at)[0])
    held = torch.stack(columns, -1)  # [T, Dh, F]
    felt = (held.abs() > 1e-9).any(0).any(0)
    held = held[:, :, felt]
    if held.shape[1] != held.shape[2]:
        return None
    first = held[0].abs().argmax(0)  # at position 0 nothing is turned: each feature in its place
    if len(set(first.tolist())) == len(first):
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
    unit = torch.eye(held.shape[-1], dtype=held.dtype)
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
        return Wrong("the two features of a pair are turned by different angles: tables and pairs do not match", "tables")
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
