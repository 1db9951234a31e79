from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.batches import Batches
from headwise.errors import ConfigError, DataError

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200)


def like_multi30k(count: int = 29_000) -> tuple[np.ndarray, np.ndarray]:
    """Lengths much like that corpus's with its subwords: mean 16, spread 5, correlation 0.8."""
    generator = np.random.default_rng(0)
    shared = generator.gamma(9.0, 1.4, count)
    source = 2 + shared + generator.gamma(2.0, 1.2, count)
    target = 2 + shared + generator.gamma(2.0, 1.4, count)
    return source.astype(np.int64), target.astype(np.int64)


@given(LENGTHS, st.integers(40, 500), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_every_index_once_and_no_batch_too_large(
    lengths: list[tuple[int, int]], batch_tokens: int, seed: int, number: int
):
    source, target = [pair[0] for pair in lengths], [pair[1] for pair in lengths]
    batches = Batches(source, target, batch_tokens, seed)
    epoch = batches.epoch(number)
    assert sorted(np.concatenate(epoch).tolist()) == list(range(len(lengths)))
    for batch in epoch:
        longest = max(max(lengths[index]) for index in batch)
        assert 0 < len(batch) * longest <= batch_tokens
    assert 0 <= batches.padding_share(epoch) < 1


@given(LENGTHS, st.integers(0, 100), st.integers(0, 100))
def test_an_epoch_depends_on_seed_and_number_alone(lengths: list[tuple[int, int]], seed: int, number: int):
    source, target = [pair[0] for pair in lengths], [pair[1] for pair in lengths]
    walked, fresh = Batches(source, target, 80, seed), Batches(source, target, 80, seed)
    for earlier in range(min(number, 3)):
        walked.epoch(earlier)
    for one, other in zip(walked.epoch(number), fresh.epoch(number), strict=True):
        assert one.tolist() == other.tolist()


# at 4,096 tokens, 0.052 without the rising and falling order
@pytest.mark.parametrize(("batch_tokens", "most"), [(1024, 0.04), (4096, 0.05), (8192, 0.06)])
def test_little_padding_and_few_batches_on_real_lengths(batch_tokens: int, most: float):
    source, target = like_multi30k()
    batches = Batches(source, target, batch_tokens, 1)
    epoch = batches.epoch(0)
    assert batches.padding_share(epoch) < most
    # no cut wastes much: the longer sides alone would fill nearly as many batches
    assert len(epoch) < 1.06 * np.maximum(source, target).sum() / batch_tokens + 2


def test_the_padding_of_batches_in_random_order_would_be_large():
    # the wrong twin of the test above: without buckets the measure must show it
    source, target = like_multi30k()
    batches = Batches(source, target, 4096, 1)
    unsorted = np.array_split(np.random.default_rng(0).permutation(len(source)), 120)
    assert batches.padding_share(unsorted) > 0.4


def test_padding_share_counts_both_sides():
    batches = Batches([1, 3, 5], [2, 2, 4], 100, 1)
    # batch of 1 and 3 tokens against 2 and 2: 8 of 2 * (3 + 2); the other has no padding
    assert batches.padding_share([np.array([0, 1]), np.array([2])]) == pytest.approx(1 - 17 / 19)
    assert batches.padding_share([np.array([1])]) == 0


def test_epochs_and_seeds_differ_in_batches_and_in_order():
    source, target = like_multi30k(5_000)
    batches = Batches(source, target, 1024, 1)

    def together(epoch: list[np.ndarray]) -> set[frozenset[int]]:
        return {frozenset(batch.tolist()) for batch in epoch}

    first, second = batches.epoch(0), batches.epoch(1)
    other = Batches(source, target, 1024, 2).epoch(0)
    assert len(together(first) & together(second)) < len(first) / 10
    assert len(together(first) & together(other)) < len(first) / 10
    longest = [int(source[batch].max()) for batch in first]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


def test_pairs_of_one_length_still_meet_new_neighbours():
    batches = Batches([7] * 64, [7] * 64, 7 * 8, 3)
    assert {frozenset(b.tolist()) for b in batches.epoch(0)} != {
        frozenset(b.tolist()) for b in batches.epoch(1)
    }


def test_an_epoch_of_29_000_pairs_is_quick():
    batches = Batches(*like_multi30k(), 4096, 1)
    batches.epoch(0)
    # processor time, so that a busy machine does not fail it; usually 0.02 s
    start = time.process_time()
    batches.epoch(1)
    assert time.process_time() - start < 0.2


def test_a_pair_longer_than_a_batch_is_named():
    with pytest.raises(DataError) as caught:
        Batches([3, 9, 4], [3, 17, 4], 16, 1)
    assert str(caught.value) == (
        "every pair must fit a batch: pair 2 has 9 source and 17 target tokens, batch_tokens=16; "
        "raise batch_tokens to 17 or lower max_length"
    )
    assert len(Batches([3, 9, 4], [3, 17, 4], 17, 1).epoch(0)) >= 2


def test_what_cannot_be_batched_is_refused():
    with pytest.raises(DataError, match="got 2 source lengths and 1 target lengths; give both"):
        Batches([1, 2], [1], 8, 1)
    with pytest.raises(DataError, match="at least one pair: got none"):
        Batches([], [], 8, 1)
    with pytest.raises(ConfigError, match="batch_tokens must be at least 1: got 0; 4096 is usual"):
        Batches([1], [1], 0, 1)
