"""Exact tables of every mask."""

from __future__ import annotations

import pytest
import torch

from headwise.model.masks import causal_keep, keep_as_bias, padding_keep, weights_outside


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
