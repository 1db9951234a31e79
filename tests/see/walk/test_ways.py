"""Ways through a graph: back to the projections, forward along views, and the constants on the way."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.doctor.graph import Op
from headwise.doctor.trace import Recording, recording
from headwise.see.walk.ways import (
    backward,
    end_of,
    factor_of,
    followed,
    is_fold,
    is_join,
    is_projection,
    stops_projecting,
    tail,
)
from see.walk.walk_models import numbers


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.one(x).view(*x.shape[:2], 2, 4).transpose(1, 2) * 0.5
        z = torch.cat([y, y[:, :0]], 1) / torch.tensor(4.0)
        return x + self.other(z.transpose(1, 2).reshape(*x.shape[:2], 8))


def recorded() -> tuple[Recording, list[Op]]:
    model, x = Two(), numbers(2, 3, 6)
    with torch.no_grad(), recording(model, [x]) as record:
        model(x)
    return record, [op for op in record.ops if is_projection(op)]


def test_the_way_back_ends_at_the_projection_and_the_way_forward_at_what_is_no_view() -> None:
    record, (one, other) = recorded()
    ways, halts = backward([other.inputs[1]], stops_projecting)
    assert halts == [one] and [op.name for op in ways if not is_fold(op)] == ["mul", "div"]
    assert all(one.index < op.index < other.index for op in ways)
    onward = followed([end_of(one)], is_fold)
    assert [op.name for op in onward] == ["view", "transpose"]
    assert record.ops[-1].name == "add" and is_join(record.ops[-1])
    assert backward([other.inputs[1]], stops_projecting, {ways[-1].out})[1] == []


def test_a_projection_ends_with_its_axes_and_its_bias() -> None:
    _, (one, other) = recorded()
    assert [op.name for op in tail(one)] == ["view"] and end_of(one).shape == (2, 3, 8)
    assert end_of(other).shape == (2, 3, 6)


def test_constants_are_read_and_all_else_is_none() -> None:
    record, _ = recorded()
    factors = [factor_of(op) for op in record.ops]
    assert [f for f in factors if f is not None] == [0.5, 0.25]


def test_joining_with_nothing_is_a_view() -> None:
    record, _ = recorded()
    assert [is_fold(op) for op in record.ops if op.name == "cat"] == [True]
