"""Activations are named by operation and arguments; by hand, by what they give on other numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.trace import recording
from headwise.see.walk.activations import activation, is_bend
from see.walk.walk_models import numbers


def named(run: Any, x: Tensor) -> str:
    with torch.no_grad(), recording(nn.Module(), [x]) as record:
        run(x)
    assert all(map(is_bend, record.ops))
    return activation(record, record.ops, record.ops[0].inputs[0])


@pytest.mark.parametrize(
    ("module", "told"),
    [
        (nn.ReLU(), "relu"), (nn.ReLU(inplace=True), "relu"), (nn.ReLU6(), "relu6"), (nn.ELU(), "elu"),
        (nn.ELU(0.5), "elu, alpha 0.5"), (nn.SELU(), "selu"), (nn.GELU(), "gelu"),
        (nn.GELU("tanh"), "gelu (tanh)"), (nn.SiLU(), "silu"), (nn.Mish(), "mish"), (nn.Tanh(), "tanh"),
        (nn.Sigmoid(), "sigmoid"), (nn.Hardswish(), "hardswish"), (nn.Hardtanh(), "hardtanh, -1 to 1"),
        (nn.LeakyReLU(), "leaky relu"), (nn.CELU(), "celu"), (lambda x: x.clamp(min=0), "relu"),
        (lambda x: x.clamp(max=0), ""), (lambda x: x.clamp(0, 1), ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0])
def test_one_operation_is_what_its_arguments_say_whatever_the_batch_holds(
    module: Any, told: str, size: float
) -> None:
    assert named(module, numbers(4, 6) * size) == told


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (lambda x: x * torch.sigmoid(x), "silu (by hand)"),
        (lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))), "gelu (by hand)"),
        (lambda x: F.relu(x).square(), "relu squared (by hand)"),
        (F.tanhshrink, "tanhshrink (by hand)"),
        (F.softsign, "softsign (by hand)"),
        (lambda x: F.relu(x) * 1.01, ""),
        (lambda x: F.gelu(x) + 1e-3 * x.sin(), ""),
    ],
)
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0])
def test_a_formula_is_tried_on_numbers_that_tell_it_from_others(run: Any, told: str, size: float) -> None:
    assert named(run, numbers(2, 3) * size) == told
