"""LayerNorm and RMSNorm against their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise.model.norm import LayerNorm, RMSNorm, make_norm
from torch_layers import shaken, small_config


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


# RMSNorm


def rms_by_formula(x: Tensor, norm: RMSNorm, is_outside: bool = False) -> Tensor:
    mean_square = x.square().sum(-1, keepdim=True) / x.size(-1)
    root = mean_square.sqrt() + norm.eps if is_outside else (mean_square + norm.eps).sqrt()
    return x / root * norm.gain


@pytest.fixture
def rms() -> RMSNorm:
    norm = shaken(RMSNorm(12, eps=1e-3).double())
    assert isinstance(norm, RMSNorm)
    return norm


def test_rms_equals_the_formula(rms: RMSNorm) -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64) * 3 + 1
    assert (rms(x) - rms_by_formula(x, rms)).abs().max() < 1e-12
    # the wrong twin: LayerNorm, which takes the mean away
    assert (rms(x) - rms_by_formula(x - x.mean(-1, keepdim=True), rms)).abs().max() > 1e-2


def test_rms_has_eps_inside_the_root(rms: RMSNorm) -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64) / 10
    assert (rms(x) - rms_by_formula(x, rms)).abs().max() < 1e-12
    assert (rms(x) - rms_by_formula(x, rms, is_outside=True)).abs().max() > 1e-3


def test_scaling_changes_nothing_for_rms_and_shifting_does() -> None:
    norm = RMSNorm(12, eps=1e-12).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    assert (norm(x * 7) - norm(x)).abs().max() < 1e-9
    assert (norm(x * -7) + norm(x)).abs().max() < 1e-9
    assert (norm(x + 7) - norm(x)).abs().max() > 0.1


def test_rms_takes_every_position_by_itself_and_zeros_as_zeros(rms: RMSNorm) -> None:
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    assert (rms(x)[1, 3] - rms(x[1, 3])).abs().max() < 1e-12
    assert not rms(torch.zeros(1, 12, dtype=torch.float64)).any()


def test_rms_has_a_gain_alone() -> None:
    assert [name for name, _ in RMSNorm(12).named_parameters()] == ["gain"]
    assert repr(RMSNorm(12)) == "RMSNorm(12, eps=1e-05)"


@pytest.mark.parametrize(("name", "kind"), [("layer", LayerNorm), ("rms", RMSNorm)])
def test_the_configuration_names_the_norm_its_width_and_its_eps(
    name: str, kind: type[LayerNorm] | type[RMSNorm]
) -> None:
    config = small_config(norm_kind=name, norm_eps=1e-3)
    assert type(make_norm(config)) is kind
    assert make_norm(config).gain.shape == (12,) and make_norm(config, 4).gain.shape == (4,)
    assert make_norm(config).eps == make_norm(config, 4).eps == 1e-3
