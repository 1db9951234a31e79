"""Rotary positions: turned by hand, their laws, and the frequencies of other libraries."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.config import RotaryConfig
from headwise.model.rotary import Rotary, Turns, rotary_frequencies, turn
from torch_layers import VISIBLE, small_config

WIDTH = 64
SCALINGS: dict[str, RotaryConfig] = {
    "none": RotaryConfig(),
    "linear": RotaryConfig(scaling="linear", factor=4.0),
    "ntk": RotaryConfig(scaling="ntk", factor=4.0),
    "yarn": RotaryConfig(scaling="yarn", factor=4.0, original_length=512),
    "llama3": RotaryConfig(
        scaling="llama3", base=500_000.0, factor=8.0, original_length=8_192, fast_turns=4.0, slow_turns=1.0
    ),
}
every_scaling = pytest.mark.parametrize("name", SCALINGS)


def turns_at(places: list[int], config: RotaryConfig, d_head: int = 8) -> Turns:
    rotary = Rotary(small_config(d_head=d_head, positions="rotary", rotary=config))
    return rotary(torch.tensor([places]), torch.float64)


def heads(length: int, d_head: int = 8) -> Tensor:
    return torch.randn(2, 3, length, d_head, dtype=torch.float64)


def test_each_pair_is_a_complex_number_turned_by_its_angle() -> None:
    x, places = heads(4), [0, 1, 7, 1_000]
    turned = turn(x, turns_at(places, RotaryConfig()))
    for t, place in enumerate(places):
        for i in range(4):
            angle = place * 10_000 ** (-2 * i / 8)
            number = torch.complex(x[:, :, t, i], x[:, :, t, i + 4]) * complex(
                math.cos(angle), math.sin(angle)
            )
            assert (turned[:, :, t, i] - number.real).abs().max() < 1e-12
            assert (turned[:, :, t, i + 4] - number.imag).abs().max() < 1e-12


def test_pairing_neighbours_is_the_same_but_for_the_order_of_the_coordinates() -> None:
    """The paper's pairs (0, 1), (2, 3), ...: equation 34."""
    x, places = heads(3), [0, 3, 50]
    paper = torch.empty_like(x)
    for t, place in enumerate(places):
        for i in range(4):
            angle = place * 10_000 ** (-2 * i / 8)
            a, b = x[:, :, t, 2 * i], x[:, :, t, 2 * i + 1]
            paper[:, :, t, 2 * i] = a * math.cos(angle) - b * math.sin(angle)
            paper[:, :, t, 2 * i + 1] = b * math.cos(angle) + a * math.sin(angle)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    turns = turns_at(places, RotaryConfig())
    assert (turn(x[..., order], turns) - paper[..., order]).abs().max() < 1e-12
    assert (turn(x, turns) - paper).abs().max() > VISIBLE  # without the permutation they differ


@every_scaling
def test_scores_depend_on_the_distance_alone(name: str) -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    config = SCALINGS[name]

    def score(m: int, n: int) -> float:
        return (turn(q, turns_at([m], config)) * turn(k, turns_at([n], config))).sum().item()

    for distance in (0, 1, 5):
        expected = score(distance, 0)
        assert all(abs(score(start + distance, start) - expected) < 1e-10 for start in (1, 40, 3_000))
    assert abs(score(0, 5) - score(5, 0)) > VISIBLE  # forwards is not backwards
    # the wrong twin: the queries alone are turned
    one, other = ((turn(q, turns_at([m], config)) * k).sum().item() for m in (6, 41))
    assert abs(one - other) > VISIBLE


@every_scaling
def test_lengths_stay_but_for_yarns_factor(name: str) -> None:
    x = heads(4)
    turned = turn(x, turns_at([0, 1, 9, 700], SCALINGS[name]))
    factor = 0.1 * math.log(4) + 1 if name == "yarn" else 1.0
    assert (turned.norm(dim=-1) - factor * x.norm(dim=-1)).abs().max() < 1e-12


def test_coordinates_past_the_last_pair_stay() -> None:
    x = heads(3)
    config = RotaryConfig(share=0.5)
    turned = turn(x, turns_at([1, 2, 3], config))
    assert torch.equal(turned[..., 4:], x[..., 4:])
    assert (turned[..., :4] - turn(x[..., :4], turns_at([1, 2, 3], RotaryConfig(), 4))).abs().max() < 1e-12
    assert (turned[..., :4] - x[..., :4]).abs().max() > VISIBLE


def test_the_first_position_is_not_turned() -> None:
    x = heads(1)
    assert torch.equal(turn(x, turns_at([0], RotaryConfig())), x)


def test_each_row_may_have_places_of_its_own() -> None:
    rotary = Rotary(small_config(d_head=8, positions="rotary"))
    x = heads(3)
    together = turn(x, rotary(torch.tensor([[0, 1, 2], [0, 0, 1]]), torch.float64))
    for row, places in enumerate(([0, 1, 2], [0, 0, 1])):
        alone = turn(x[row : row + 1], rotary(torch.tensor([places]), torch.float64))
        assert torch.equal(together[row : row + 1], alone)


# frequencies


def by_formula(config: RotaryConfig, width: int) -> list[float]:
    """Each pair's radians a position, one by one, in Python's own numbers."""
    plain = [config.base ** (-2 * i / width) for i in range(width // 2)]
    length, factor = config.original_length, config.factor

    def pair_with(turns: float) -> float:  # solve length * base^(-2 i / width) = 2 pi turns for i
        return width / 2 * math.log(length / (2 * math.pi * turns), config.base)

    def frequency(i: int) -> float:
        slow = plain[i] / factor
        if config.scaling == "linear":
            return slow
        if config.scaling == "ntk":
            return (config.base * factor ** (width / (width - 2))) ** (-2 * i / width)
        if config.scaling == "llama3":
            wavelength = 2 * math.pi / plain[i]
            if wavelength < length / config.fast_turns:
                return plain[i]
            if wavelength > length / config.slow_turns:
                return slow
            kept = (length / wavelength - config.slow_turns) / (config.fast_turns - config.slow_turns)
            return (1 - kept) * slow + kept * plain[i]
        if config.scaling == "yarn":
            low, high = math.floor(pair_with(config.fast_turns)), math.ceil(pair_with(config.slow_turns))
            slowed = min(max((i - max(low, 0)) / (min(high, width - 1) - max(low, 0)), 0), 1)
            return (1 - slowed) * plain[i] + slowed * slow
        return plain[i]

    return [frequency(i) for i in range(width // 2)]


@every_scaling
def test_frequencies_equal_the_formula(name: str) -> None:
    config = SCALINGS[name]
    ours, _ = rotary_frequencies(config, WIDTH)
    expected = torch.tensor(by_formula(config, WIDTH), dtype=torch.float64)
    assert (ours / expected - 1).abs().max() < 1e-12
    for other in SCALINGS.values():  # every other way gives other frequencies
        if other is not config:
            twin = torch.tensor(by_formula(other, WIDTH), dtype=torch.float64)
            assert (ours / twin - 1).abs().max() > 0.01


def theirs(config: RotaryConfig, seq_len: int | None = None, **more: Any) -> tuple[Tensor, float]:
    """The frequencies that the transformers library computes, in float32."""
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = {"ntk": "dynamic"}.get(config.scaling, config.scaling)
    rope: dict[str, Any] = {
        "rope_type": kind,
        "rope_theta": config.base,
        "factor": config.factor,
        "original_max_position_embeddings": config.original_length,
        **more,
    }
    shape = transformers.LlamaConfig(
        hidden_size=4 * WIDTH,
        num_attention_heads=4,
        head_dim=WIDTH,
        max_position_embeddings=int(config.original_length * config.factor),
        rope_parameters=rope,
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[kind](shape, torch.device("cpu"), seq_len=seq_len)
    return frequencies.double(), factor


FLOAT32 = 2e-6  # of powers computed in float32


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0])
def test_linear_is_that_of_transformers(base: float, factor: float) -> None:
    config = RotaryConfig(scaling="linear", base=base, factor=factor)
    frequencies, multiplied = theirs(config)
    ours, own = rotary_frequencies(config, WIDTH)
    assert (ours / frequencies - 1).abs().max() < FLOAT32 and own == multiplied == 1


@pytest.mark.parametrize("given", [None, 1.3])
@pytest.mark.parametrize("length", [128, 512, 4_096, 131_072])  # in the last even the slowest turns once
@pytest.mark.parametrize("factor", [2.0, 4.0, 40.0])
@pytest.mark.parametrize(("fast", "slow"), [(32.0, 1.0), (8.0, 2.0)])
def test_yarn_is_that_of_transformers(
    fast: float, slow: float, factor: float, length: int, given: float | None
) -> None:
    config = RotaryConfig(
        scaling="yarn",
        factor=factor,
        original_length=length,
        fast_turns=fast,
        slow_turns=slow,
        attention_factor=given,
    )
    more = {} if given is None else {"attention_factor": given}
    frequencies, multiplied = theirs(config, beta_fast=fast, beta_slow=slow, **more)
    ours, own = rotary_frequencies(config, WIDTH)
    assert (ours / frequencies - 1).abs().max() < FLOAT32
    assert own == pytest.approx(multiplied, rel=1e-12)


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
@pytest.mark.parametrize("length", [128, 8_192])
@pytest.mark.parametrize("factor", [2.0, 8.0, 32.0])
def test_llama3_is_that_of_transformers(factor: float, length: int, base: float) -> None:
    config = RotaryConfig(
        scaling="llama3", base=base, factor=factor, original_length=length, fast_turns=4.0, slow_turns=1.0
    )
    frequencies, multiplied = theirs(config, low_freq_factor=1.0, high_freq_factor=4.0)
    ours, own = rotary_frequencies(config, WIDTH)
    assert (ours / frequencies - 1).abs().max() < FLOAT32 and own == multiplied == 1


@pytest.mark.parametrize("factor", [2.0, 3.0, 8.0])
def test_ntk_is_the_dynamic_one_of_transformers_at_factor_times_the_length(factor: float) -> None:
    # theirs stretches by how far the text at hand passes the trained length; ours by a fixed factor
    plain = RotaryConfig(scaling="ntk", factor=1.0, original_length=512)
    frequencies, _ = theirs(plain, seq_len=int(512 * factor))
    ours, _ = rotary_frequencies(RotaryConfig(scaling="ntk", factor=factor, original_length=512), WIDTH)
    assert (ours / frequencies - 1).abs().max() < FLOAT32


@every_scaling
def test_a_factor_of_one_scales_nothing(name: str) -> None:
    settings = {**vars(SCALINGS[name]), "factor": 1.0}
    ours, factor = rotary_frequencies(RotaryConfig(**settings), WIDTH)
    plain, _ = rotary_frequencies(RotaryConfig(base=SCALINGS[name].base), WIDTH)
    assert (ours / plain - 1).abs().max() < 1e-12 and factor == 1


@every_scaling
def test_one_pair_alone_can_be_scaled_too(name: str) -> None:
    frequencies, _ = rotary_frequencies(SCALINGS[name], 2)
    assert frequencies.shape == (1,) and bool(frequencies.isfinite().all())


def test_angles_far_out_are_exact_and_float32_ones_are_not() -> None:
    place, pair = 100_003, 1
    exact = math.cos(place * 10_000 ** (-2 * pair / 8))
    rotary = Rotary(small_config(d_head=8, positions="rotary"))
    turns = rotary(torch.tensor([[place]]), torch.float32)
    assert abs(turns.cosine[0, 0, 0, pair].item() - exact) < 1e-7
    rough = torch.cos(torch.tensor(float(place)) * torch.tensor(10_000.0) ** (-2 * pair / 8))
    assert abs(rough.item() - exact) > 1e-4


def test_its_settings_are_shown_and_nothing_is_learned_or_saved() -> None:
    rotary = Rotary(small_config(positions="rotary", rotary=SCALINGS["linear"]))
    assert repr(rotary) == "Rotary(4, base=10000, scaling=linear)"
    assert rotary.state_dict() == {} and list(rotary.parameters()) == []
