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
