"""Indices sent through moves arrive where the numbers do; what mixes elements is not followed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headwise.doctor.follow import follow, indices, leads, through, unfolded
from headwise.doctor.trace import Op, Value, recording

Function = Callable[[Tensor], Tensor]


def path_of(function: Function, x: Tensor) -> tuple[Value, Value, tuple[Op, ...]]:
    """The product that the function is given, what it makes of it, and the way between."""
    with torch.no_grad(), recording(None, [x]) as record:
        start = x * 1.0
        end = function(start)
        record.settle(end)
    first, last = record.value_of(start), record.value_of(end)
    assert first is not None and last is not None
    return first, last, tuple(record.between([first], [last]))


def split(x: Tensor) -> Tensor:
    return x.view(2, 5, 3, 4).transpose(1, 2)


MOVES: list[Function] = [
    split,
    lambda x: split(x).reshape(6, 5, 4).mT,
    lambda x: x.permute(2, 0, 1).flatten(1)[1:7],
    lambda x: x.flip(1).roll(2, -1),
    lambda x: x.unbind(1)[3].mT,
    lambda x: x.chunk(3, -1)[1].repeat_interleave(2, 0),
    lambda x: x[:, None].expand(2, 3, 5, 12).contiguous(),
    lambda x: x.index_select(1, torch.tensor([4, 0, 0])),
]


@pytest.mark.parametrize("function", MOVES)
def test_an_index_goes_where_its_number_goes(function: Function) -> None:
    start, end, path = path_of(function, torch.randn(2, 5, 12))
    at = through(start, path)
    assert at is not None and at.shape == end.tensor.shape and int(at.min()) >= 1
    assert torch.equal(start.tensor.reshape(-1)[at - 1], end.tensor)


def test_what_is_joined_from_elsewhere_is_zero() -> None:
    x = torch.randn(2, 5, 12)
    start, end, path = path_of(lambda t: torch.cat([torch.ones(2, 1, 12), t], 1), x)
    at = through(start, path)
    assert at is not None and bool((at[:, 0] == 0).all())
    assert torch.equal(at[:, 1:], indices(start)) and at.shape == end.tensor.shape
    (padded,) = path_of(lambda t: torch.nn.functional.pad(t, (0, 2)), x)[2]
    value = padded.inputs[0]
    moved = follow(padded, value, indices(value), padded.out)
    assert moved is not None and bool((moved[..., 12:] == 0).all())


def test_each_element_treated_alone_stays_where_it_is() -> None:
    def treat(x: Tensor) -> Tensor:
        y = (x * 3 + torch.arange(12)).tanh().masked_fill(x > 1, -1e9)
        y[y < 0] = 7.0
        return y.tril()

    start, _, path = path_of(treat, torch.randn(2, 12, 12))
    chain = tuple(op for op in path if start in op.inputs or op.name in {"add", "tanh", "tril"})
    assert {"mul", "add", "tanh", "tril"} <= {op.name for op in chain}
    for op in chain:
        moved = follow(op, op.inputs[0], indices(op.inputs[0]), op.out)
        assert moved is not None and torch.equal(moved, indices(op.out))


@pytest.mark.parametrize(
    "function", [lambda x: x @ torch.ones(12, 3), lambda x: x.softmax(-1), lambda x: x.cumsum(1)]
)
def test_what_mixes_elements_is_not_followed(function: Function) -> None:
    start, _, path = path_of(function, torch.randn(2, 5, 12))
    assert through(start, path) is None


def test_of_several_results_the_one_that_is_read_on_is_taken() -> None:
    _, _, path = path_of(lambda x: x.split(4, -1)[2].mT, torch.randn(2, 5, 12))
    cut = path[0]
    assert [leads(out, path, cut) for out in cut.outputs] == [False, False, True]


@pytest.mark.parametrize("form", ["one below the other", "in turns"])
def test_heads_that_share_keys_are_unfolded_in_whatever_order_their_rows_come(form: str) -> None:
    weight, _, _ = path_of(lambda x: x + 1, torch.zeros(1, 2, 3, 5))  # two heads of three queries
    at = indices(weight) - 1
    folded = at.flatten(1, 2) if form == "one below the other" else at.transpose(1, 2).flatten(1, 2)
    values = torch.arange(5 * 4).view(1, 5, 4)
    apart, repeated = unfolded(folded, values, weight)
    assert torch.equal(apart, at[0]) and torch.equal(repeated, values.expand(2, -1, -1))
