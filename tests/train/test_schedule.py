"""The rate of each step is the formula of its source, literally."""

from __future__ import annotations

import math

import pytest

from headwise.config import TrainConfig
from headwise.train.schedule import learning_rate, peak_rate

STEPS = [1, 2, 3, 999, 1000, 1001, 4000, 10_000]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (128, 1000), (16, 1)])
def test_left_alone_it_is_the_papers_equation_3(step: int, d_model: int, warmup: int) -> None:
    config = TrainConfig(warmup_steps=warmup)
    paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert learning_rate(step, config, d_model) == pytest.approx(paper, rel=1e-13)


def test_the_papers_peak_stands_at_the_end_of_the_warm_up() -> None:
    config = TrainConfig(warmup_steps=4000)
    rates = [learning_rate(step, config, 512) for step in range(1, 10_001)]
    assert max(rates) == rates[3999] == pytest.approx(peak_rate(config, 512), rel=1e-15)
    assert rates[3999] == pytest.approx(1 / math.sqrt(512 * 4000), rel=1e-15)
    assert rates[:4000] == sorted(rates[:4000])
    assert rates[3999:] == sorted(rates[3999:], reverse=True)


@pytest.mark.parametrize("step", STEPS)
def test_a_chosen_peak_scales_the_same_curve(step: int) -> None:
    config = TrainConfig(warmup_steps=1000, learning_rate=0.002)
    expected = 0.002 * min(step / 1000, math.sqrt(1000 / step))
    assert learning_rate(step, config, 512) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("step", STEPS)
def test_without_warm_up_the_first_step_has_the_peak(step: int) -> None:
    config = TrainConfig(warmup_steps=0, learning_rate=0.5)
    assert learning_rate(step, config, 512) == pytest.approx(0.5 * step**-0.5, rel=1e-15)
    constant = TrainConfig(warmup_steps=0, learning_rate=0.5, schedule="constant")
    assert learning_rate(step, constant, 512) == 0.5


def test_constant_rises_then_stays() -> None:
    config = TrainConfig(warmup_steps=10, learning_rate=1.0, schedule="constant")
    rates = [learning_rate(step, config, 512) for step in (1, 5, 9, 10, 11, 10_000)]
    assert rates == [0.1, 0.5, 0.9, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("step", [*range(10, 111, 7), 110])
def test_cosine_is_sgdr_equation_5(step: int) -> None:
    config = TrainConfig(warmup_steps=10, max_steps=110, learning_rate=2.0, final_rate=0.1, schedule="cosine")
    low, high = 0.2, 2.0
    sgdr = low + 0.5 * (high - low) * (1 + math.cos(math.pi * (step - 10) / 100))
    assert learning_rate(step, config, 512) == pytest.approx(sgdr, rel=1e-13)


@pytest.mark.parametrize("final", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("warmup", [0, 1, 100])
def test_cosine_ends_at_its_final_share(final: float, warmup: int) -> None:
    config = TrainConfig(
        warmup_steps=warmup, max_steps=100, learning_rate=2.0, final_rate=final, schedule="cosine"
    )
    # with nothing but warm-up the last step is its top
    expected = 2.0 if warmup == 100 else 2.0 * final
    assert learning_rate(100, config, 512) == pytest.approx(expected, abs=1e-15)
    assert all(math.isfinite(learning_rate(step, config, 512)) for step in range(1, 101))
