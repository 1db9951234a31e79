"""LayerNorm against the formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise.model.norm import LayerNorm
from torch_layers import shaken


def by_formula(x: Tensor, norm: LayerNorm, correction: int = 0, is_outside: bool = False) -> Tensor:
    mean = x.sum(-1, keepdim=True) / x.size(-1)
    variance = (x - mean).square().sum(-1, keepdim=True) / (x.size(-1) - correction)
    deviation = variance.sqrt() + norm.eps if is_outside else (variance + norm.eps).sqrt()
    return (x - mean) / deviation * norm.gain + norm.bias


@pytest.fixture
def norm() -> LayerNorm:
    norm = shaken(LayerNorm(12, eps=1e-3).double())
    assert isinstance(norm, LayerNorm)
    return norm


def test_equals_the_formula(norm: LayerNorm) -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64) * 3 + 1
    assert (norm(x) - by_formula(x, norm)).abs().max() < 1e-12


def test_the_unbiased_variance_does_not(norm: LayerNorm) -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64) * 3 + 1
    assert (norm(x) - by_formula(x, norm, correction=1)).abs().max() > 1e-2


def test_nor_does_eps_outside_the_root(norm: LayerNorm) -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64) / 10
    assert (norm(x) - by_formula(x, norm)).abs().max() < 1e-12
    assert (norm(x) - by_formula(x, norm, is_outside=True)).abs().max() > 1e-3


def test_shifting_and_scaling_change_nothing() -> None:
    norm = LayerNorm(12, eps=1e-12).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    assert (norm(x + 7) - norm(x)).abs().max() < 1e-9
    assert (norm(x * 7) - norm(x)).abs().max() < 1e-9
    assert (norm(x * -7) - norm(x)).abs().max() > 0.1


def test_every_position_goes_by_itself(norm: LayerNorm) -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    assert (norm(x)[1, 3] - norm(x[1, 3])).abs().max() < 1e-12


def test_a_constant_vector_gives_the_bias(norm: LayerNorm) -> None:
    assert (norm(torch.full((1, 12), 4.0, dtype=torch.float64)) - norm.bias).abs().max() < 1e-12


def test_the_default_eps_is_the_usual_one() -> None:
    assert LayerNorm(12).eps == 1e-5
    assert repr(LayerNorm(12)) == "LayerNorm(12, eps=1e-05)"
