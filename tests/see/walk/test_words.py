"""Words for operations: short, and measured where they could be wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.trace import Op, recording
from headwise.see.walk import words
from headwise.see.walk.walk import trace
from see.walk.walk_models import numbers, step


def ops(run: object, *inputs: Tensor) -> list[Op]:
    with torch.no_grad(), recording(nn.Module(), inputs) as record:
        run(*inputs)  # pyright: ignore
    return record.ops


def test_operations_are_listed_once_each_and_not_without_end() -> None:
    made = ops(lambda x: (x.view(-1).clone() * 2).exp().sin().cos(), numbers(2, 3))
    assert words.listed(made) == "view, copy, times, ..." and words.listed(made[:2]) == "view, copy"


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (lambda x: x * 8**0.5, "times 2.83"),
        (lambda x: x / 2, "divide 2"),
        (lambda x: x + x, "add"),
        (lambda x: x.tanh(), "tanh"),
        (lambda x: x.relu_(), "relu"),
    ],
)
def test_a_number_is_told_with_its_operation(run: object, told: str) -> None:
    assert words.factor(ops(run, numbers(2, 3))[-1]) == told


def test_heads_of_one_attention_that_differ_are_all_told() -> None:
    class Heads(nn.Module):
        """A loop over heads, each with its own factor and every other one causal."""

        def __init__(self) -> None:
            super().__init__()
            self.each = nn.ModuleList(nn.ModuleList(nn.Linear(16, 4) for _ in range(3)) for _ in range(4))
            self.out = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            made: list[Tensor] = []
            for n, (q, k, v) in enumerate(self.each):  # pyright: ignore
                scores = q(x) @ k(x).transpose(1, 2) / (n + 1)
                if n % 2 == 0:
                    later = torch.ones(x.shape[1], x.shape[1]).triu(1) > 0
                    scores = scores.masked_fill(later, float("-inf"))
                made.append(scores.softmax(-1) @ v(x))
            return x + self.out(torch.cat(made, -1))

    walk = trace(Heads(), numbers(2, 7, 16))
    assert step(walk, "scores").operation == (
        "Q K^T not scaled, / sqrt(4), x 0.333, x 0.25: differs by head (1/sqrt(4) = 0.5)"
    )
    assert step(walk, "mask").operation == "hides 84 of 392 pairs"
    assert "split into heads" not in {s.name for s in walk.steps}
