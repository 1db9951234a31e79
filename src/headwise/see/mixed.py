"""What an attention really mixes its values with, and which keys a mask hides: by numbers of the pass itself.

A mask jumps; a soft cap, a temperature or a bias by distance is gradual. To tell them apart the way from the
product to the softmax is gone again with products near 0: what is still far below the rest was put there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.doctor.check import Place
from headwise.doctor.follow import FILLS, through
from headwise.doctor.sites import REACH, Site, is_product, matrices
from headwise.doctor.trace import DROPOUTS, Op, Recording, Value

JUMP = 80.0  # between what a query may look at and what it may not: exp(-80) = 1e-35 of a weight
NOTHING = 1e-10  # of the weight: it is lost in the rounding of the rest
NEAR_ZERO = 2.0**-10  # of the largest product, small also beside a temperature of 100


@dataclass(frozen=True, eq=False)
class Mixed:
    """weights: as they meet the values, without dropout; changed: where what the softmax gave was changed."""

    weights: Float[Tensor, "N Tq Tk"]
    keep: Bool[Tensor, "N Tq Tk"]
    changed: Place | None = None


def mixed(record: Recording, site: Site) -> Mixed:
    """The weights of an attention, and where a query may look.

    Laws: a cell is hidden only where its score is -inf, or a mask took it so far down that no weight is left;
    no monotone change of the scores hides a cell; what is shown is what is multiplied with the values.
    """
    keep = ~_hidden(record, site)
    weights, op = _handed(record, site, keep)
    return Mixed(weights, keep, op.place if op is not None else None)


def _hidden(record: Recording, site: Site) -> Bool[Tensor, "N Tq Tk"]:
    put = _put(record, site)
    return torch.isneginf(site.scores) | (_beyond_a_jump(put) & ~(site.weights > NOTHING))


def _put(record: Recording, site: Site) -> Float[Tensor, "N Tq Tk"]:
    """What the softmax would read of products near 0: masks and position biases alone."""
    small = {op.out: _near_zero(op) for op in _products(site)}
    try:
        (scores,) = record.replay(small, [site.scores_value])
    except (RuntimeError, IndexError, TypeError, ValueError):  # a step that cannot be done again
        return site.bias.float().nan_to_num(0.0, 0.0, -torch.inf)
    return Site.take(scores, site.weights_at).float().nan_to_num(0.0, 0.0, -torch.inf)


def _products(site: Site) -> Iterator[Op]:
    """The product of queries and keys, and others that are added to it (relative positions)."""
    todo, seen = [(site.scores_value, 0)], {site.scores_value}
    while todo:
        value, steps = todo.pop()
        op = value.op
        if op is None or steps > REACH:
            continue
        if is_product(op):
            if op is site.product or any(factor.trained for factor in matrices(op)):
                yield op
        elif op.moves or op.pointwise or op.name == "update" or op.name in FILLS:
            for each in op.inputs:
                if each.tensor.is_floating_point() and each not in seen:
                    seen.add(each)
                    todo.append((each, steps + 1))


def _near_zero(op: Op) -> Tensor:
    """The product, shrunk in its order; what is added in the same operation stays as it is."""
    out = op.out.tensor
    a, b = (factor.tensor for factor in matrices(op))
    product = out
    if op.name.startswith("add") or op.name == "baddbmm":
        product = float(op.kwargs.get("alpha", 1)) * (a @ b)
    finite = product.nan_to_num(0.0, 0.0, 0.0)
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    small = finite * (NEAR_ZERO * 2.0 ** -_exponent(largest))
    if product is out:
        return small
    added = op.inputs[0].tensor * float(op.kwargs.get("beta", 1))
    return (added + small).expand(out.shape)


def _exponent(number: float) -> int:
    return int(torch.frexp(torch.tensor(number, dtype=torch.float64)).exponent)


def _beyond_a_jump(put: Float[Tensor, "N Tq Tk"]) -> Bool[Tensor, "N Tq Tk"]:
    """True beneath the first gap of more than JUMP in the sorted row."""
    top = put.amax(-1, keepdim=True)
    low = put < top - JUMP
    if not bool(low.any()):
        return low
    least = put.masked_fill(low, torch.inf).amin(-1)  # of those that are near the largest
    most = put.masked_fill(~low, -torch.inf).amax(-1)
    gradual = low.any(-1) & ~(least - most > JUMP)
    if bool(gradual.any()):
        rows = put[gradual]
        ordered = rows.sort(-1, descending=True).values
        is_gap = ordered[:, :-1] - ordered[:, 1:] > JUMP
        first = is_gap.long().argmax(-1, keepdim=True) + 1
        border = ordered.gather(-1, first)
        low[gradual] = (rows <= border) & is_gap.any(-1, keepdim=True)
    return low


def _handed(
    record: Recording, site: Site, keep: Bool[Tensor, "N Tq Tk"]
) -> tuple[Float[Tensor, "N Tq Tk"], Op | None]:
    """The weights as the product with the values reads them, and the operation that changed them, if any."""
    if all(op.moves for op in site.after):
        return site.weights, None
    went = through(site.weights_value, site.after)
    left, right = matrices(site.mix)
    operand = left if site.v_value is right else right
    if went is None or went.shape != operand.shape:
        return site.weights, None
    dropped = {op: entered for op, entered in _steps(site) if _drops(op, entered)}
    given = operand.tensor
    if dropped:
        undone = {op.outputs[0]: entered.tensor for op, entered in dropped.items()}
        (given,) = record.replay(undone, [operand])
    (to,) = (went.flatten() > 0).nonzero(as_tuple=True)
    found = went.flatten()[to] - 1
    at = torch.full((site.weights_value.tensor.numel(),), -1, device=found.device)
    at[found] = to
    at, repeats = at[site.weights_at], bool((torch.bincount(found) > 1).any())
    if repeats or bool((at < 0).any()):  # one weight in several places: which is meant?
        return site.weights, None
    weights = given.reshape(-1)[at]
    counted = keep.any(-1, keepdim=True)
    if not bool((_unlike(weights, site.weights) & counted).any()):
        return site.weights, None
    steps = [op for op, _ in _steps(site) if not op.moves and op not in dropped]
    if not dropped:
        steps = [op for op in steps if _changes(op, site)] or steps
    written = (_writer(op) if op.name == "update" else op for op in steps)
    return weights, next((op for op in written if op is not None and op.place is not None), None)


def _steps(site: Site) -> Iterator[tuple[Op, Value]]:
    """Each operation between the softmax and the product with the values, with the operand it enters by."""
    value = site.weights_value
    for place, op in enumerate(site.after):
        yield op, value
        later = site.after[place + 1 :]
        value = next((out for out in op.outputs if later and out in later[0].inputs), op.outputs[0])


def _writer(update: Op) -> Op | None:
    """What wrote to the memory that is read again."""
    return next((value.op for value in update.inputs[1:] if value.op is not None), None)


def _changes(op: Op, site: Site) -> bool:
    at = through(site.weights_value, site.after[: site.after.index(op) + 1])
    out = op.outputs[0].tensor
    if at is None or at.shape != out.shape:
        return True
    held = site.weights_value.tensor.reshape(-1)[(at - 1).clamp(min=0)]
    return bool((_unlike(out, held) & (at > 0)).any())


def _unlike(a: Tensor, b: Tensor) -> Tensor:
    """Where two weights differ by more than the rounding of the coarser of their types."""
    eps = max(torch.finfo(each.dtype).eps for each in (a, b))
    a, b = a.float(), b.float()
    return ~(((a - b).abs() <= 4 * eps) | (a.isnan() & b.isnan()))


def _drops(op: Op, entered: Value) -> bool:
    """Is it dropout that stays on in eval mode: one operation, or a product with random noise?"""
    if op.name in DROPOUTS:
        return True
    return op.name.rstrip("_") == "mul" and any(_is_noise(each) for each in op.inputs if each is not entered)


def _is_noise(value: Value) -> bool:
    for _ in range(6):
        op = value.op
        if op is None:
            return False
        if op.name in DROPOUTS:
            return True
        if not op.inputs:
            return False
        value = op.inputs[-1] if op.name == "update" else op.inputs[0]
    return False
