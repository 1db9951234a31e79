"""Equation 2 and its gated descendant, position by position."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headwise.model.feedforward import FeedForward, GatedFeedForward, make_feedforward
from torch_layers import shaken, small_config


def relu(z: Tensor) -> Tensor:
    return z.clamp(min=0)


def gelu(z: Tensor) -> Tensor:
    return z * 0.5 * (1 + torch.erf(z / math.sqrt(2)))


def gelu_tanh(z: Tensor) -> Tensor:
    return z / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def silu(z: Tensor) -> Tensor:
    return z / (1 + torch.exp(-z))


ACTIVATIONS = [("relu", relu), ("gelu", gelu), ("gelu-tanh", gelu_tanh), ("silu", silu)]


@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("activation", "formula"), ACTIVATIONS)
def test_equals_the_formula(activation: str, formula: object, has_bias: bool) -> None:
    layer = shaken(FeedForward(small_config(activation=activation, feedforward_bias=has_bias)).double())
    assert isinstance(layer, FeedForward) and callable(formula)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    first, second = (layer.wide.bias, layer.narrow.bias) if has_bias else (0, 0)
    expected = formula(x @ layer.wide.weight.T + first) @ layer.narrow.weight.T + second
    assert (layer(x) - expected).abs().max() < 1e-12
    wrong = (gelu if formula is relu else relu)(x @ layer.wide.weight.T + first) @ layer.narrow.weight.T
    assert (layer(x) - wrong - second).abs().max() > 1e-3
    assert sum(p.numel() for p in layer.parameters()) == 2 * 12 * 20 + has_bias * (12 + 20)


def test_d_ff_is_four_times_d_model_when_left_out() -> None:
    assert FeedForward(small_config(d_ff=None)).wide.weight.shape == (48, 12)


def test_every_position_goes_by_itself() -> None:
    layer = FeedForward(small_config())
    x = torch.randn(2, 5, 12)
    changed = x.clone()
    changed[:, 3] += 1
    moved = (layer(changed) - layer(x)).abs().amax((0, 2)) > 1e-4
    assert moved.tolist() == [False, False, False, True, False]


def test_dropout_lies_between_the_two_products() -> None:
    layer = FeedForward(small_config(feedforward_dropout=0.5, feedforward_bias=False))
    with torch.no_grad():
        layer.wide.weight.fill_(1)
        layer.narrow.weight.fill_(1)
    sums = layer(torch.ones(50, 20, 12) / 12)  # each of the 20 inner elements is 0 or 2
    assert bool(((sums % 2).abs() < 1e-4).logical_or((sums % 2 - 2).abs() < 1e-4).all())
    assert 19.5 < sums.mean() < 20.5 and sums.std() > 3
    assert (layer.eval()(torch.ones(1, 1, 12) / 12) - 20).abs().max() < 1e-4


def test_gelu_and_its_approximation_are_told_apart() -> None:
    exact, approximate = (
        FeedForward(small_config(activation=kind)).double() for kind in ("gelu", "gelu-tanh")
    )
    approximate.load_state_dict(exact.state_dict())
    x = torch.randn(2, 5, 12, dtype=torch.float64) * 3
    assert 1e-6 < (exact(x) - approximate(x)).abs().max() < 1e-2


# gated


@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("activation", "formula"), ACTIVATIONS)
def test_gated_equals_the_formula(activation: str, formula: object, has_bias: bool) -> None:
    config = small_config(activation=activation, feedforward_bias=has_bias, gated=True)
    layer = shaken(GatedFeedForward(config).double())
    assert isinstance(layer, GatedFeedForward) and callable(formula)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    of_gate, of_value = layer.wide.weight[:20], layer.wide.weight[20:]
    none = torch.zeros(40, dtype=torch.float64)
    first = (layer.wide.bias if has_bias else none)[:20], (layer.wide.bias if has_bias else none)[20:]
    second = layer.narrow.bias if has_bias else 0
    gate, value = x @ of_gate.T + first[0], x @ of_value.T + first[1]
    expected = (formula(gate) * value) @ layer.narrow.weight.T + second
    assert (layer(x) - expected).abs().max() < 1e-12
    # the wrong twin: gate and value swapped
    swapped = (formula(value) * gate) @ layer.narrow.weight.T + second
    assert (layer(x) - swapped).abs().max() > 1e-3
    assert sum(p.numel() for p in layer.parameters()) == 3 * 12 * 20 + has_bias * (12 + 40)


def test_gated_takes_every_position_by_itself() -> None:
    layer = GatedFeedForward(small_config(gated=True))
    x = torch.randn(2, 5, 12)
    changed = x.clone()
    changed[:, 3] += 1
    moved = (layer(changed) - layer(x)).abs().amax((0, 2)) > 1e-4
    assert moved.tolist() == [False, False, False, True, False]


def test_gated_drops_what_the_gate_let_through() -> None:
    layer = GatedFeedForward(small_config(feedforward_dropout=0.5, feedforward_bias=False, gated=True))
    with torch.no_grad():
        layer.wide.weight.fill_(1)
        layer.narrow.weight.fill_(1)
    sums = layer(torch.ones(50, 20, 12) / 12)  # each of the 20 inner elements is 0 or 2
    assert bool(((sums % 2).abs() < 1e-4).logical_or((sums % 2 - 2).abs() < 1e-4).all())
    assert 19.5 < sums.mean() < 20.5 and sums.std() > 3


def test_the_configuration_names_the_layer() -> None:
    assert type(make_feedforward(small_config())) is FeedForward
    assert type(make_feedforward(small_config(gated=True))) is GatedFeedForward
