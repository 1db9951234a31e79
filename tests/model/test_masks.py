"""Exact tables of every mask."""

from __future__ import annotations

import pytest
import torch

from headwise.model.masks import (
    causal_keep,
    keep_as_bias,
    padding_keep,
    prefix_keep,
    weights_outside,
    window_keep,
)


@pytest.mark.parametrize("pad_id", [0, 9])
def test_padding(pad_id: int) -> None:
    ids = torch.tensor([[5, pad_id, 6], [7, 8, pad_id]])
    keep = padding_keep(ids, pad_id)
    assert keep.shape == (2, 1, 1, 3)
    assert keep[:, 0, 0].tolist() == [[True, False, True], [True, True, False]]


def test_causal() -> None:
    keep = causal_keep(4)
    assert keep.shape == (1, 1, 4, 4)
    assert keep[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "table"),
    [
        (2, 4, [[1, 1, 1, 0], [1, 1, 1, 1]]),
        (1, 3, [[1, 1, 1]]),
        (1, 1, [[1]]),
    ],
)
def test_causal_for_the_last_queries(num_queries: int, num_keys: int, table: list[list[int]]) -> None:
    assert causal_keep(num_queries, num_keys)[0, 0].int().tolist() == table
    # the same rows as in the whole square
    assert torch.equal(causal_keep(num_queries, num_keys), causal_keep(num_keys)[:, :, -num_queries:])


def test_causal_and_padding_combine() -> None:
    keep = causal_keep(3) & padding_keep(torch.tensor([[5, 6, 7], [5, 6, 0]]), 0)
    assert keep.shape == (2, 1, 3, 3)
    assert keep[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert keep[1, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 0]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_as_numbers_to_add(dtype: torch.dtype) -> None:
    keep = torch.tensor([[[[True, False], [False, False]]]])
    bias = keep_as_bias(keep, dtype)
    assert bias.dtype == dtype and bias.shape == keep.shape
    assert bool((bias[keep] == 0).all())
    assert bool(bias.isfinite().all()) and bool((bias[~keep] < -30_000).all())
    rows = bias[0, 0].softmax(-1)
    assert rows[0].tolist() == [1, 0]  # exactly
    assert bool(rows[1].isfinite().all())


def test_weights_outside_finds_the_largest_leak() -> None:
    keep = causal_keep(3)
    weights = torch.rand(2, 4, 3, 3) * keep
    assert weights_outside(weights, keep) == 0
    weights[1, 2, 0, 1] = 0.25
    weights[0, 3, 1, 2] = 0.5
    assert weights_outside(weights, keep) == 0.5
    assert weights_outside(weights[1:], keep) == 0.25


def test_window() -> None:
    keep = window_keep(4, window=2)
    assert keep.shape == (1, 1, 4, 4)
    assert keep[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("window", [1, 2, 3, 6, 9])
def test_windows_of_the_last_queries_are_the_last_rows(window: int) -> None:
    whole = window_keep(6, window=window)
    assert bool((whole.sum(-1) == torch.arange(1, 7).clamp(max=window)).all())
    assert not (whole & ~causal_keep(6)).any()
    for num_queries in range(1, 7):
        assert torch.equal(window_keep(num_queries, 6, window), whole[:, :, -num_queries:])


def test_a_window_of_one_sees_itself_and_one_of_all_is_causal() -> None:
    assert torch.equal(window_keep(5, window=1)[0, 0], torch.eye(5, dtype=torch.bool))
    for window in (5, 6, 100):
        assert torch.equal(window_keep(5, window=window), causal_keep(5))
    assert torch.equal(window_keep(2, 5, 5), causal_keep(2, 5))
    assert not torch.equal(window_keep(5, window=4), causal_keep(5))


def test_prefix() -> None:
    keep = prefix_keep(torch.tensor([2, 0, 4]), 4)
    assert keep.shape == (3, 1, 4, 4)
    assert keep[:, 0].int().tolist() == [
        [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]],
        [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]],
        [[1, 1, 1, 1]] * 4,
    ]


def test_a_prefix_of_none_or_one_is_causal() -> None:
    assert torch.equal(prefix_keep(torch.tensor([0]), 5), causal_keep(5))
    assert torch.equal(prefix_keep(torch.tensor([1]), 5), causal_keep(5))
    assert not torch.equal(prefix_keep(torch.tensor([2]), 5), causal_keep(5))
