"""Rows to one tensor."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.padding import pad_rows, pad_sources


class Ids:
    pad_id, bos_id, eos_id = 0, 1, 2


def test_rows_are_filled_on_the_right() -> None:
    padded = pad_rows([[5, 6, 7], [8], []], 9)
    assert padded.tolist() == [[5, 6, 7], [8, 9, 9], [9, 9, 9]]
    assert padded.dtype == torch.int64


def test_sources_end_before_the_padding() -> None:
    assert pad_sources([[5, 6], [7], []], Ids()).tolist() == [[5, 6, 2], [7, 2, 0], [2, 0, 0]]


@pytest.mark.parametrize("rows", [[[]], [[], []]])
def test_empty_rows_are_integers_too(rows: list[list[int]]) -> None:
    padded = pad_rows(rows, 0)
    assert padded.shape == (len(rows), 0) and padded.dtype == torch.int64


@given(st.lists(st.lists(st.integers(3, 50), max_size=12), min_size=1, max_size=8))
def test_nothing_is_lost_and_nothing_invented(rows: list[list[int]]) -> None:
    padded = pad_sources(rows, Ids())
    assert padded.shape == (len(rows), max(map(len, rows)) + 1)
    assert [[i for i in row if i != 0] for row in padded.tolist()] == [[*row, 2] for row in rows]
    before = [list(row) for row in rows]
    pad_sources(rows, Ids())
    assert rows == before
