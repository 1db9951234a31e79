"""The paper's sinusoids computed naively, their rotation law, and the limits of each scheme."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headwise.errors import DataError
from headwise.model.positions import (
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    make_positions,
    places_of,
    sinusoidal_table,
)
from torch_layers import small_config


def naive(position: int, coordinate: int, d_model: int) -> float:
    angle = position / 10_000 ** (2 * (coordinate // 2) / d_model)
    return math.sin(angle) if coordinate % 2 == 0 else math.cos(angle)


def naive_rows(positions: list[int], d_model: int) -> Tensor:
    return torch.tensor(
        [[naive(p, i, d_model) for i in range(d_model)] for p in positions], dtype=torch.float64
    )


@pytest.mark.parametrize("d_model", [2, 12, 64])
def test_equals_the_papers_formula(d_model: int) -> None:
    positions = [0, 1, 2, 100, 511, 4_999]
    table = sinusoidal_table(5_000, d_model, torch.float64)[positions]
    assert (table - naive_rows(positions, d_model)).abs().max() < 1e-11
    rounded = sinusoidal_table(5_000, d_model)[positions]
    assert (rounded - naive_rows(positions, d_model)).abs().max() < 2**-24


def test_angles_in_float32_would_not() -> None:
    even = torch.arange(0, 64, 2, dtype=torch.float32)
    angle = torch.tensor([[4_999.0]]) * torch.exp(even * (-math.log(10_000.0) / 64))
    wrong = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
    assert (wrong - naive_rows([4_999], 64)).abs().max() > 1e-5


@pytest.mark.parametrize("k", [1, 7, 300])
def test_moving_on_by_k_is_one_rotation_wherever_it_starts(k: int) -> None:
    table = sinusoidal_table(1_000, 16, torch.float64)
    turned = torch.zeros(16, 16, dtype=torch.float64)
    for i in range(0, 16, 2):
        angle = k / 10_000 ** (i / 16)
        turned[i, i] = turned[i + 1, i + 1] = math.cos(angle)
        turned[i, i + 1], turned[i + 1, i] = math.sin(angle), -math.sin(angle)
    assert (turned @ turned.T - torch.eye(16)).abs().max() < 1e-12
    assert (table[:-k] @ turned.T - table[k:]).abs().max() < 1e-11


def test_no_two_of_many_positions_look_alike() -> None:
    table = sinusoidal_table(1_000, 16, torch.float64)
    assert torch.cdist(table, table).fill_diagonal_(1).min() > 0.05


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_adds_the_rows_from_the_offset_on(kind: str, offset: int) -> None:
    positions = make_positions(small_config(positions=kind))
    assert isinstance(positions, SinusoidalPositions | LearnedPositions)
    if isinstance(positions, LearnedPositions):
        torch.nn.init.normal_(positions.table)
    x = torch.randn(2, 5, 12)
    assert torch.equal(positions(x, offset), x + positions.table[offset : offset + 5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_table_grows_and_what_was_there_stays(dtype: torch.dtype) -> None:
    positions = SinusoidalPositions(small_config(max_length=8)).to(dtype)
    before = positions.table.clone()
    x = torch.randn(2, 5, 12, dtype=dtype)
    assert torch.equal(positions(x, 20), x + sinusoidal_table(25, 12)[20:].to(dtype))
    assert positions.table.size(0) == 50 and positions.table.dtype == dtype
    assert torch.equal(positions.table[:8], before)
    grown = positions.table
    positions(x, 45)
    assert positions.table is grown  # room for the next steps: not one growth a step


def test_sinusoids_are_neither_saved_nor_learned() -> None:
    positions = SinusoidalPositions(small_config())
    assert positions.state_dict() == {}
    assert list(positions.parameters()) == []
    assert [name for name, _ in positions.named_buffers()] == ["table"]


def test_a_low_precision_input_keeps_its_dtype() -> None:
    positions = SinusoidalPositions(small_config())
    assert positions(torch.randn(1, 2, 12, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize(("length", "offset"), [(33, 0), (1, 32)])
def test_learned_positions_refuse_what_they_do_not_have(length: int, offset: int) -> None:
    positions = make_positions(small_config(positions="learned"))
    positions(torch.zeros(1, length - 1, 12), offset)  # up to max_length is fine
    with pytest.raises(DataError) as refused:
        positions(torch.zeros(1, length, 12), offset)
    assert str(refused.value) == (
        "learned positions reach max_length: got a sequence of 33 tokens, max_length=32; "
        "shorten the input or train with a larger max_length"
    )


def test_learned_positions_learn_only_the_rows_that_were_used() -> None:
    positions = make_positions(small_config(positions="learned"))
    assert isinstance(positions, LearnedPositions)
    positions(torch.zeros(2, 3, 12), 4).sum().backward()
    assert positions.table.grad is not None
    assert positions.table.grad.any(-1).nonzero().flatten().tolist() == [4, 5, 6]


def test_none_adds_nothing() -> None:
    positions = make_positions(small_config(positions="none"))
    assert isinstance(positions, NoPositions)
    x = torch.randn(2, 5, 12)
    assert positions(x, 7) is x


@pytest.mark.parametrize("kind", ["rotary", "alibi", "relative"])
def test_schemes_inside_attention_add_nothing_here(kind: str) -> None:
    assert isinstance(make_positions(small_config(positions=kind)), NoPositions)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned"])
def test_places_stand_in_for_the_offset(kind: str) -> None:
    positions = make_positions(small_config(positions=kind))
    assert isinstance(positions, SinusoidalPositions | LearnedPositions)
    if isinstance(positions, LearnedPositions):
        torch.nn.init.normal_(positions.table)
    x = torch.randn(2, 3, 12)
    places = torch.tensor([[0, 0, 1], [5, 4, 9]])
    assert torch.equal(positions(x, 0, places), x + positions.table[places])
    one = torch.tensor([[3, 4, 5]])
    assert torch.equal(positions(x, 0, one), positions(x, 3))
    assert not torch.equal(positions(x, 0, one), positions(x))


def test_places_count_from_the_first_that_is_no_padding() -> None:
    assert places_of(4, None).tolist() == [[0, 1, 2, 3]]
    keep = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    assert places_of(5, keep).tolist() == [[0, 0, 0, 1, 2], [0, 1, 2, 2, 2], [0, 1, 2, 3, 4], [0, 0, 0, 0, 0]]
