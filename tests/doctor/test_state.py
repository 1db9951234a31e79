"""Whatever a pass leaves behind in a model is gone after it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.state import State


class Leaves(nn.Module):
    """Counts in a number and a buffer, replaces one, keeps a table and what it saw, moves statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.table, self.bare = 0, None, torch.zeros(2)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(3))
        self.norm = nn.BatchNorm1d(3)
        self.history: list[Tensor] = []
        self.by_length: dict[int, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.steps += 1
        self.bare += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.table = x if self.table is None else self.table
        self.seen = x
        self.history.append(x)
        self.by_length[len(x)] = x
        return self.norm(x)


@pytest.mark.parametrize("train", [False, True])
def test_a_pass_leaves_nothing(train: bool) -> None:
    model = Leaves().train(train)
    state, before = State(model), {name: t.clone() for name, t in model.state_dict().items()}
    weight = model.norm.weight
    for _ in range(2):
        with state.kept():
            model(torch.randn(4, 3))
            assert model.calls == 1 and int(model.steps) == 1
        assert not model.history and not model.by_length
        assert (model.calls, model.table) == (0, None) and not hasattr(model, "seen")
        assert not model.bare.any() and model.norm.weight is weight and model.training == train
        assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


def test_also_where_the_pass_fails() -> None:
    model = Leaves()
    with pytest.raises(RuntimeError, match="stop"), State(model).kept():
        model(torch.randn(4, 3))
        raise RuntimeError("stop")
    assert model.calls == 0 and int(model.steps) == 0
