"""Replaying a part of a recording with other numbers is running with them, whatever is written in place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.graph import Recording, Value, key_of
from headwise.doctor.trace import recording

Function = Callable[[Tensor], Tensor]


def rotary_slices(x: Tensor) -> Tensor:
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / 3
    out = torch.empty_like(x)
    out[..., ::2] = x[..., ::2] * angle.cos() - x[..., 1::2] * angle.sin()
    out[..., 1::2] = x[..., ::2] * angle.sin() + x[..., 1::2] * angle.cos()
    return out @ out.mT


def rotary_in_place(x: Tensor) -> Tensor:
    q = x.clone()
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] / 3
    even, odd = q[..., ::2].clone(), q[..., 1::2].clone()
    q[..., ::2] *= angle.cos()
    q[..., ::2] -= odd * angle.sin()
    q[..., 1::2] = even * angle.sin() + odd * angle.cos()
    return q @ x.mT


def filled_piecewise(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0], x.shape[1], 2 * x.shape[2], dtype=x.dtype)
    for place in range(x.shape[1]):
        out[:, place, : x.shape[2]] = x[:, place] * (place + 1)
    out[:, 1:, x.shape[2] :] = x[:, :-1].sin()
    return out.sum(-1)


def overwritten(x: Tensor) -> Tensor:
    y = x * 2
    y[:, 0] = x[:, 1]
    y[:, 0] += 1
    y[:, :2] = y[:, :2] * x[:, :2]
    return y.cumsum(1)


def base_through_views(x: Tensor) -> Tensor:
    base = torch.ones(x.shape[0], x.shape[1], x.shape[2], dtype=x.dtype)
    flat = base.view(-1)
    swapped = base.transpose(0, 1)
    swapped.mul_(x.transpose(0, 1))
    flat[::3] = 5.0
    return swapped.exp() + flat.view(base.shape).transpose(0, 1)


def residual_in_place(x: Tensor) -> Tensor:
    y = x + 0
    for _ in range(3):
        y += F.gelu(y @ torch.eye(y.shape[-1], dtype=y.dtype))
    return y


def masked_in_place(x: Tensor) -> Tensor:
    scores = x @ x.mT / 2
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    scores.masked_fill_(~keep, float("-inf"))
    scores[:, :, 0] = scores[:, :, 0] - 1
    return scores.softmax(-1) @ x


def transposed(x: Tensor) -> Tensor:
    return (
        (x.transpose(0, 1).reshape(x.shape[1], -1) * 2).view(x.shape[1], x.shape[0], -1).transpose(0, 1).exp()
    )


def written_into_an_expanded_row(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[:] = x.sum(0)
    out.index_add_(0, torch.tensor([0]), x[:1])
    return out.where(out > 0, x)


def joined(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * 2, torch.stack([second, first]).sum(0)], -1).softmax(-1)


FUNCTIONS: list[Function] = [
    rotary_slices,
    rotary_in_place,
    filled_piecewise,
    overwritten,
    base_through_views,
    residual_in_place,
    masked_in_place,
    transposed,
    written_into_an_expanded_row,
    joined,
]


def record_of(function: Function, x: Tensor) -> tuple[Recording, Value, Value]:
    with torch.no_grad(), recording(None, [x]) as record:
        out = function(x)
        record.settle(out)
    start = next(value for value in record.values if value.name == "input 0")
    end = record.value_of(out)
    assert end is not None and torch.equal(end.tensor, out)
    return record, start, end


@pytest.mark.parametrize("function", FUNCTIONS)
def test_replay_with_other_numbers_is_running_with_them(function: Function) -> None:
    x, other = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    record, start, end = record_of(function, x)
    held = [value.tensor.clone() for value in record.values]
    (again,) = record.replay({start: other}, [end])
    assert torch.equal(again, function(other))
    assert not torch.equal(again, end.tensor)
    # and nothing recorded, nor what was handed in, has changed
    assert all(
        torch.equal(v.tensor, was) or v.tensor.isnan().any()
        for v, was in zip(record.values, held, strict=True)
    )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_replay_with_the_same_numbers_is_the_recording(function: Function) -> None:
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    record, start, end = record_of(function, x)
    (again,) = record.replay({start: x.clone()}, [end])
    assert torch.equal(again, end.tensor)
    assert record.replay({}, [end])[0] is end.tensor


@pytest.mark.parametrize("function", FUNCTIONS)
def test_any_value_on_the_way_can_be_held_still(function: Function) -> None:
    """With every cut set of values at its old numbers, a change before it shows nothing after it."""
    x, other = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    record, start, end = record_of(function, x)
    (again,) = record.replay({start: other, end: end.tensor}, [end])
    assert torch.equal(again, end.tensor)
    for op in record.between([start], [end]):
        if op.name == "update" or not op.out.tensor.is_floating_point():
            continue
        # changed to what it would have been: everything after it is as if the input had been changed there
        (what,) = record.replay({start: other}, [op.out])
        (direct,) = record.replay({start: other, op.out: what}, [end])
        assert torch.equal(direct, function(other))


def test_a_view_can_be_taken_of_whatever_is_put_in() -> None:
    x = torch.randn(4, 6, dtype=torch.float64)

    def function(x: Tensor) -> Tensor:
        return torch.ops.aten.view.default(x.mT.contiguous(), [24]) * 2

    record, start, end = record_of(function, x)
    strided = torch.randn(6, 4, dtype=torch.float64).mT
    (again,) = record.replay({start: strided}, [end])
    assert torch.equal(again, function(strided))
    middle = next(op.out for op in record.ops if op.name == "clone")
    (again,) = record.replay({middle: strided.mT.mT.mT}, [end])
    assert torch.equal(again, strided.mT.reshape(24) * 2)


def test_what_is_put_in_is_not_written_to() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 1
        y.zero_()
        return y + 1

    x = torch.randn(3, dtype=torch.float64)
    record, _, end = record_of(function, x)
    product = record.ops[0].out
    mine = torch.full((3,), 7.0, dtype=torch.float64)
    (again,) = record.replay({product: mine}, [end])
    assert torch.equal(mine, torch.full((3,), 7.0, dtype=torch.float64)) and torch.equal(
        again, torch.ones(3).double()
    )


def test_older_moments_can_be_asked_for_too() -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        y.add_(100)
        return y

    x, other = torch.randn(2, 3, dtype=torch.float64)
    record, start, end = record_of(function, x)
    doubled = record.ops[0].out
    assert [t.tolist() for t in record.replay({start: other}, [doubled, end])] == [
        (other * 2).tolist(),
        (other * 2 + 100).tolist(),
    ]


def test_a_model_inside_can_be_asked_on_its_own() -> None:
    """The numbers between two blocks replaced: what comes out is the second block of them."""
    torch.manual_seed(0)
    blocks = nn.ModuleList(
        nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(2)
    ).double()
    x, other = torch.randn(2, 2, 5, 8, dtype=torch.float64)
    with torch.no_grad(), recording(blocks, [x]) as record:
        middle = blocks[0](x)
        out = blocks[1](middle)
    start, end = record.value_of(middle), record.value_of(out)
    assert start is not None and end is not None
    (again,) = record.replay({start: other}, [end])
    assert torch.allclose(again, blocks[1](other), atol=1e-12)


def test_tensors_are_told_apart_by_memory_and_geometry() -> None:
    x = torch.randn(4, 4)
    assert key_of(x) == key_of(x[:]) and key_of(x) != key_of(x.mT) and key_of(x) != key_of(x[1:])
    assert key_of(x) != key_of(x.clone())
    assert key_of(torch.empty(0)) != key_of(torch.empty(0))  # no memory: each is its own
