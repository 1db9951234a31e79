"""Words for operations: short, and measured where they could be wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.trace import Op, recording
from headwise.see.walk import words
from see.walk.walk_models import numbers


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


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "tanh", "sigmoid", "elu", "mish"])
def test_activations_are_known_by_their_numbers_and_no_other_is_taken_for_one(name: str) -> None:
    function = getattr(F, name)
    made = ops(function, numbers(40, 3))
    assert words.activation(made[0].inputs[0], made[-1].out) == name
    wrong = ops(lambda x: function(x) * 1.01, numbers(40, 3))
    assert words.activation(wrong[0].inputs[0], wrong[-1].out) == ""
