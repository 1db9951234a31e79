"""Every token once an epoch, cut elsewhere each time, and nothing but (seed, number) decides where."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.windows import Windows
from headwise.errors import DataError

SIZES = st.integers(1, 9).flatmap(lambda length: st.tuples(st.just(length), st.integers(length + 1, 120)))


def made(count: int, length: int, rows: int = 3, seed: int = 1) -> Windows:
    return Windows(np.arange(count, dtype=np.uint16), length, rows, seed)


@given(SIZES, st.integers(1, 7), st.integers(0, 5), st.integers(0, 3))
def test_an_epoch_reads_every_token_once_but_for_the_ends(
    sizes: tuple[int, int], rows: int, number: int, seed: int
) -> None:
    length, count = sizes
    windows = made(count, length, rows, seed)
    batches = [windows.cut(starts) for starts in windows.epoch(number)]
    assert all(1 <= len(batch) <= rows for batch in batches)
    assert all(len(batch) == rows for batch in batches[:-1])
    read = Counter(int(index) for batch in batches for index in batch[:, :-1].flatten())
    assert max(read.values()) == 1
    first, last = min(read), max(read)
    assert sorted(read) == list(range(first, last + 1))
    assert first < length and count - 1 - last <= length
    for batch in batches:  # each with the token after it
        assert (batch[:, 1:] == batch[:, :-1] + 1).all()


def test_an_epoch_depends_on_seed_and_number_alone() -> None:
    def starts(seed: int, number: int, before: int = 0) -> list[list[int]]:
        windows = made(500, 7, seed=seed)
        for other in range(before):
            windows.epoch(other)
        return [rows.tolist() for rows in windows.epoch(number)]

    assert starts(1, 3) == starts(1, 3, before=3)
    assert starts(1, 3) != starts(1, 4) and starts(1, 3) != starts(2, 3)


def test_borders_move_and_windows_come_in_any_order() -> None:
    windows = made(500, 7)
    offsets = {min(start for rows in windows.epoch(n) for start in rows.tolist()) for n in range(60)}
    assert offsets == set(range(7))
    flat = [start for rows in windows.epoch(0) for start in rows.tolist()]
    assert flat != sorted(flat)


@given(SIZES, st.integers(1, 7), st.none() | st.integers(1, 130))
def test_in_order_they_stand_side_by_side(sizes: tuple[int, int], rows: int, most: int | None) -> None:
    length, count = sizes
    flat = [start for starts in made(count, length).in_order(rows, most) for start in starts.tolist()]
    every = [start for start in range(0, count, length) if start + length + 1 <= count]
    fitting = [start for start in every if most is None or start + length <= most]
    assert flat == (fitting or every[:1])


def test_a_text_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(
        DataError, match="the training text must hold a window of 8 tokens and one more: got 8"
    ):
        Windows(np.arange(8, dtype=np.uint16), 8, 1, 1, "training text")
    assert len(made(9, 8).epoch(0)) == 1
