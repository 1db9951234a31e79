"""What is recognised as nothing else: its plain words under its own line, masks and tables told apart."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.see.walk.walk import trace
from see.walk.walk_models import Block, Einsum, ids, numbers, step


def test_operations_of_one_line_are_one_step_and_those_of_two_are_two() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = (x * 2).sin().exp()
            return torch.cat([x, y], -1)

    walk = trace(Model(), numbers(2, 10, 16))
    assert [(s.name, s.operation, s.shape) for s in walk.steps[1:]] == [
        ("times, sin, ...", "times 2, sin, exp", (2, 10, 16)),
        ("concatenate", "", (2, 10, 32)),
    ]
    assert walk.steps[2].line == walk.steps[1].line + 1 and walk.steps[2].code.startswith("return torch.cat")


def test_a_mask_that_layers_share_is_a_step_where_it_is_made() -> None:
    walk = trace(Einsum(), ids())
    assert step(walk, "mask made").shape == (7, 7) and step(walk, "mask made").axes == ("T", "T")


def test_views_belong_to_the_step_that_reads_them_and_last_ones_to_what_made_them() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            return self.block(x.transpose(0, 1)).transpose(0, 1)

    walk = trace(Model(), numbers(10, 2, 16), layout="time-major")
    assert "other" not in {s.kind for s in walk.steps}
    assert walk.steps[-1].parts[-1].name == "transpose" and walk.steps[-1].shape == (10, 2, 16)


def test_numbers_that_only_python_reads_are_no_steps() -> None:
    class Model(Block):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            return y if bool(torch.isfinite(y).all()) else x

    walk = trace(Model(), numbers(2, 10, 16))
    assert walk.steps[-1].name == "LayerNorm" and "all" in {p.name for p in walk.steps[-1].parts}


def test_steps_of_one_line_keep_the_order_in_which_they_ran() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            x = x.clone(); x[:, 0] = 0; y = self.b(torch.relu(self.a(x))); y.relu_(); y *= 2  # noqa: E702 # fmt: skip
            return y

    walk = trace(Model(), numbers(2, 10, 16))
    assert [s.name for s in walk.steps[1:]] == ["fill", "a", "relu", "b", "relu, times"]


def test_what_holds_nothing_is_no_step() -> None:
    walk = trace(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), numbers(2, 3, 8, 8))
    assert [s.name for s in walk.steps[1:]] == ["convolution", "BatchNorm", "relu"]


def test_a_product_with_a_state_of_zeros_is_a_product_with_weights() -> None:
    walk = trace(nn.RNN(8, 6, batch_first=True), numbers(2, 3, 8))
    told = [(s.name, s.operation) for s in walk.steps]
    assert ("linear", "linear 6 -> 6, of a constant") in told and "prepared" not in {
        s.name for s in walk.steps
    }


def test_numbers_of_a_step_claimed_elsewhere_are_no_steps_either() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            return x if bool((y := self.a(x)).isnan().any()) else y * float(y.sum() > 1e9) + y

    walk = trace(Model(), numbers(2, 10, 16))
    assert all(s.shape for s in walk.steps)
