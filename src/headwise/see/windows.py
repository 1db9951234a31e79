"""Attention in windows, or with heads laid below one another, put back to one map a head over all tokens.

An attention whose matrices do not have one row for each token says so by its projection, which made another
number of vectors. Which vector each row and each column descends from is then asked by marks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.doctor.follow import through
from headwise.doctor.heads import SEVERAL, Projection, marked, projections
from headwise.doctor.sites import Site
from headwise.doctor.trace import Op, Recording, Value
from headwise.see.mixed import Mixed

MOST = 2**24  # elements of all heads of one attention over all tokens; beyond it windows stay apart


@dataclass(frozen=True, eq=False)
class Gathered:
    """The maps of one attention. is_in_order: do rows and columns stand as the tokens do?

    is_whole: is each matrix one head's; else windows and heads could not be told apart.
    """

    weights: Float[Tensor, "H Tq Tk"]
    keep: Bool[Tensor, "H Tq Tk"]
    is_in_order: bool = True
    is_whole: bool = True


def gathered(record: Recording, site: Site, found: Mixed) -> Gathered:
    """The maps of an attention that ran over one row, one for each head; found: what `mixed` gave of it.

    Law: what no window holds is masked, and the rows of the maps are those of the windows.
    """
    weights, keep = found.weights, found.keep
    made = projections(site.q_value)
    if not made or any(each.count == weights.size(1) for each in made):
        return Gathered(weights, keep)
    apart = Gathered(weights, keep, is_in_order=False, is_whole=False)
    queries, keys = (
        _descent(record, value, at) for value, at in ((site.q_value, site.q_at), (site.k_value, site.k_at))
    )
    if queries is None or keys is None or bool((queries.numbers < 0).any()):
        return apart
    head = _occurrence(queries.numbers)
    num_heads = int(head.max()) + 1
    if bool((torch.bincount(head.flatten()) != head.numel() // num_heads).any()):
        return apart
    shape = num_heads, queries.count, keys.count
    if num_heads * queries.count * keys.count > MOST or _repeats(keys.numbers):
        return apart
    n, r, c = (keys.numbers >= 0)[:, None, :].expand(weights.shape).nonzero(as_tuple=True)
    at = head[n, r], queries.numbers[n, r], keys.numbers[n, c]
    whole, free = weights.new_zeros(shape), keep.new_zeros(shape)
    whole[at], free[at] = weights[n, r, c], keep[n, r, c]
    return Gathered(whole, free, is_in_order=queries.is_in_order and keys.is_in_order)


@dataclass(frozen=True, eq=False)
class _Descent:
    """Which of a projection's vectors each query (or key) comes from, -1 for none of them."""

    numbers: Int[Tensor, "N T"]
    count: int
    is_in_order: bool


def _descent(record: Recording, value: Value, at: Tensor) -> _Descent | None:
    """None where a query comes from several vectors, or from projections that do not match."""
    made = projections(value)
    if len({each.count for each in made}) != 1:
        return None
    marks = {each.out: each.vectors() for each in made}
    (found,) = marked(record, marks, [value], torch.finfo(value.tensor.dtype).eps)
    found = Site.take(found, at)
    if bool((found == SEVERAL).any()):
        return None
    return _Descent(found.amax(-1), made[0].count, all(_is_in_order(each) for each in made))


def _is_in_order(made: Projection) -> bool:
    """Did nothing permute the vectors between the last operation that computed them and the projection?"""
    path: list[Op] = []
    value = made.x
    while value.op is not None and value.op.moves and value.op.name not in {"cat", "stack"}:
        path.insert(0, value.op)
        value = value.op.inputs[0]
    at = through(value, tuple(path))
    if at is None or made.axis != -1:
        return False
    first = at[..., 0].flatten()  # of each vector the first number
    return bool((first > 0).all()) and bool((first[1:] > first[:-1]).all())


def _repeats(numbers: Int[Tensor, "N T"]) -> bool:
    """Does one matrix hold a token twice?"""
    ordered = numbers.sort(-1).values
    return bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any())


def _occurrence(numbers: Int[Tensor, "N T"]) -> Int[Tensor, "N T"]:
    """How often each number has stood before, in the order of the code: the head that a row belongs to."""
    flat = numbers.flatten()
    order = flat.argsort(stable=True)
    ordered = flat[order]
    is_first = torch.ones_like(ordered, dtype=torch.bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    places = torch.arange(len(flat), device=flat.device)
    start = torch.where(is_first, places, 0).cummax(0).values
    rank = torch.empty_like(places)
    rank[order] = places - start
    return rank.view(numbers.shape)
