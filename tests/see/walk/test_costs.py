"""FLOPs agree with torch's own counter; parameters add up to those of the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from headwise.doctor.trace import plain_kernels
from headwise.see.walk.walk import trace
from see.walk.walk_models import Block, Einsum, Llama, TimeMajor, ids, numbers, step


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, 8, 4, 4, groups=1)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.back = nn.ConvTranspose2d(8, 4, 2, 2)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.deep(self.cut(x))
        return self.layer(x.flatten(2).mT), self.back(x)  # pyright: ignore


@pytest.mark.parametrize("model", [Block, Einsum, Llama, TimeMajor, Patches])
def test_flops_are_those_of_torchs_counter(model: type[nn.Module]) -> None:
    made = model().eval()
    given: Any = {Block: numbers(2, 10, 16), Patches: numbers(2, 3, 16, 16)}.get(model, ids())
    # the counter knows nothing of the CPU's own kernels
    with torch.no_grad(), plain_kernels(), FlopCounterMode(display=False) as counter:
        made(given)
    walk = trace(made, given)
    assert walk.flops == counter.get_total_flops() > 0
    times = {id(s): row.times for row in walk.rows if hasattr(row, "steps") for s in row.steps}  # pyright: ignore
    assert sum(s.flops * times.get(id(s), 1) for s in walk.steps) == walk.flops


def test_parameters_of_the_steps_are_those_of_the_model() -> None:
    block = Block()
    walk = trace(block, numbers(2, 10, 16))
    assert sum(s.params for s in walk.steps) == walk.parameters == sum(p.numel() for p in block.parameters())
    assert step(walk, "Q, K, V").params == 3 * (16 * 16 + 16) and step(walk, "LayerNorm").params == 32


def test_a_matrix_that_two_steps_share_counts_by_its_part_and_a_tied_table_for_both() -> None:
    attention = nn.MultiheadAttention(16, 2, batch_first=True)
    walk = trace(
        attention,
        (numbers(2, 3, 16), numbers(2, 5, 16)),
        call=lambda m, q, k: m(q, k, k)[0],
    )
    assert step(walk, "Q").params == 16 * 16 + 16
    tied = trace(Llama(), ids())
    assert step(tied, "embedding").params == step(tied, "logits").params == 23 * 16


def test_products_with_a_vector_are_counted_and_those_of_unknown_kernels_noted() -> None:
    class Vector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = nn.Parameter(torch.ones(16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.mv(x.flatten(0, 1), self.v)

    walk = trace(Vector(), numbers(2, 10, 16))
    assert walk.flops == 2 * 20 * 16 and not walk.notes

    class Whole(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (
                x
                + torch._int_mm(
                    torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)
                ).sum()
            )

    walk = trace(Whole(), numbers(2, 10, 16))
    assert walk.flops == 0 and "no FLOPs are counted of _int_mm" in walk.notes[0]
