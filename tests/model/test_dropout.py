"""Rate, scale, independence and gradients of a dropout that spends 16 bits an element."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headwise.model.dropout import Dropout, dropout_mask

RATES = [0.001, 0.1, 0.3, 0.5, 0.9]
N = 400_000


def five_sigma(p: float, n: int) -> float:
    return 5 * math.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("p", RATES)
def test_the_rate_and_the_mean(p: float) -> None:
    mask = dropout_mask(torch.empty(N, dtype=torch.float64), p)
    dropped = (mask == 0).double()
    assert abs(dropped.mean() - p) < five_sigma(p, N) + 2**-17
    assert abs(mask.mean() - 1) < five_sigma(p, N) / (1 - p)


def test_a_rate_off_by_three_percent_would_be_caught() -> None:
    dropped = (dropout_mask(torch.empty(N), 0.103) == 0).double()
    assert abs(dropped.mean() - 0.1) > five_sigma(0.1, N)


@pytest.mark.parametrize("p", RATES)
def test_there_are_two_values_and_the_scale_fits_the_rate_exactly(p: float) -> None:
    share = round(p * 65536) / 65536
    values = dropout_mask(torch.empty(N, dtype=torch.float64), p).unique().tolist()
    assert values == [0, pytest.approx(1 / (1 - share), rel=1e-15)]
    assert abs(share - p) <= 2**-17


@pytest.mark.parametrize("p", RATES)
def test_each_of_the_four_lanes_has_the_rate(p: float) -> None:
    dropped = (dropout_mask(torch.empty(N), p) == 0).view(-1, 4).double().mean(0)
    assert (dropped - p).abs().max() < five_sigma(p, N // 4) + 2**-17


@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
def test_lanes_are_independent_of_each_other_and_of_their_neighbours(p: float) -> None:
    kept = (dropout_mask(torch.empty(N), p) != 0).double()
    kept = (kept - kept.mean()) / kept.std()
    lanes = kept.view(-1, 4)
    correlation = lanes.T @ lanes / lanes.size(0)
    assert (correlation - torch.eye(4)).abs().max() < 5 / math.sqrt(lanes.size(0))
    for distance in (1, 2, 3, 4, 8, 64):
        assert abs((kept[:-distance] * kept[distance:]).mean()) < 5 / math.sqrt(N - distance)


def test_lanes_without_their_sign_bit_would_be_caught() -> None:
    """What random_() without bounds does: the top lane's highest bit is always 0."""
    lanes = torch.empty(N // 4, dtype=torch.int64).random_().view(torch.int16)
    dropped = (lanes < 0).view(-1, 4).double().mean(0)
    assert (dropped - 0.5).abs().max() > five_sigma(0.5, N // 4)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 1, 7), (0,), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_any_shape_and_dtype(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    mask = dropout_mask(torch.empty(shape, dtype=dtype), 0.5)
    assert mask.shape == shape and mask.dtype == dtype
    assert set(mask.flatten().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("p", [1e-6, 1 - 1e-6])
def test_the_extremes_keep_a_finite_scale(p: float) -> None:
    mask = dropout_mask(torch.empty(1_000), p)
    assert bool(mask.isfinite().all())
    assert mask.count_nonzero() == (1_000 if p < 0.5 else 0)


def test_a_strided_input_is_thinned_like_any_other() -> None:
    x = torch.randn(30, 40).T
    torch.manual_seed(3)
    thinned = Dropout(0.5)(x)
    torch.manual_seed(3)
    assert torch.equal(thinned, x * dropout_mask(x, 0.5))


@pytest.mark.parametrize("layer", [Dropout(0), Dropout(0.0), Dropout(0.5).eval()], ids=["0", "0.0", "eval"])
def test_nothing_is_dropped_when_off(layer: Dropout) -> None:
    x = torch.randn(4, 5)
    before = torch.get_rng_state()
    assert layer(x) is x
    assert torch.equal(layer.add(x, x), x + x)
    assert torch.equal(torch.get_rng_state(), before)  # and no random number is spent


def test_the_seed_decides_what_is_dropped() -> None:
    x, layer = torch.randn(100), Dropout(0.5)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("is_compiling", [False, True])
def test_add_is_the_residual_plus_the_thinned_input(
    is_compiling: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: is_compiling)
    residual, x, layer = torch.randn(4, 50), torch.randn(4, 50), Dropout(0.5)
    torch.manual_seed(3)
    added = layer.add(residual, x)
    torch.manual_seed(3)
    thinned = layer(x)
    assert (added - (residual + thinned)).abs().max() < 1e-6
    assert 60 < thinned.count_nonzero() < 140


def gradients(layer: Dropout, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
    """The gradient of the sum, and the mask that made it."""
    torch.manual_seed(3)
    (layer(x) if residual is None else layer.add(residual, x)).sum().backward()
    torch.manual_seed(3)
    assert x.grad is not None
    return x.grad, dropout_mask(x, layer.p)


def test_the_gradient_is_the_mask() -> None:
    gradient, mask = gradients(Dropout(0.3), torch.randn(50, 20, requires_grad=True), None)
    assert torch.equal(gradient, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_add_is_the_mask_and_one(dtype: torch.dtype) -> None:
    """Under autocast the sub-layer's output is bfloat16 and the residual float32."""
    residual = torch.randn(50, 20, requires_grad=True)
    x = torch.randn(50, 20, dtype=dtype, requires_grad=True)
    gradient, mask = gradients(Dropout(0.3), x, residual)
    assert gradient.dtype == dtype and torch.equal(gradient, mask)
    assert residual.grad is not None and torch.equal(residual.grad, torch.ones(50, 20))
    assert Dropout(0.3).add(residual, x).dtype == torch.float32


def test_its_rate_is_shown() -> None:
    assert repr(Dropout(0.1)) == "Dropout(p=0.1)"
