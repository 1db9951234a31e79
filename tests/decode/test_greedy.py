from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from decode.toys import (
    CONFIG,
    MARKS,
    NothingMovesCache,
    Toy,
    ToyMarks,
    plain_greedy,
    source_of,
    toy,
    toy_rows,
    watch,
)
from headwise.decode.greedy import greedy
from headwise.errors import ConfigError, DataError


@pytest.mark.parametrize("seed", [1, 2, 5])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_batch_is_what_one_would_write_first_for_each_sentence(seed: int, norm: str) -> None:
    model = toy(seed, end_bias=1.0, norm=norm)
    rows = toy_rows(seed, 9)
    limits = torch.tensor([1, 2, 12, 12, 12, 12, 12, 12, 12])
    expected = [plain_greedy(model, row, n) for row, n in zip(rows, limits.tolist(), strict=True)]
    assert greedy(model, source_of(rows), MARKS, limits) == expected
    assert len({len(ids) for ids in expected}) > 2 and len(set(map(tuple, expected))) > 4


def test_order_padding_and_neighbours_change_nothing() -> None:
    model = toy(1, end_bias=1.0)
    rows = toy_rows(1, 9)
    together = greedy(model, source_of(rows), MARKS, 12)
    assert greedy(model, source_of(rows[::-1]), MARKS, 12) == together[::-1]
    assert greedy(model, source_of(rows, more_padding=5), MARKS, 12) == together
    assert [greedy(model, source_of([row]), MARKS, 12)[0] for row in rows] == together
    content = source_of(rows, more_padding=5)
    assert bool((content[:, -5:] == MARKS.pad_id).all())  # else the line before last says nothing


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_cached_is_uncached_at_every_step(dtype: torch.dtype, tolerance: float) -> None:
    model = watch(toy(1, end_bias=1.0).to(dtype))
    greedy(model, source_of(toy_rows(1, 9)), MARKS, 12)
    assert len(model.rows) == 12
    assert model.largest_difference < tolerance


def test_a_cache_that_does_not_follow_is_found() -> None:
    model = watch(toy(1, end_bias=1.0).double(), NothingMovesCache)
    greedy(model, source_of(toy_rows(1, 9)), MARKS, 12)
    assert model.largest_difference > 0.01


def test_a_sentence_that_has_ended_leaves_the_batch() -> None:
    model = watch(toy(1, end_bias=1.0))
    rows = toy_rows(1, 9)
    written = greedy(model, source_of(rows), MARKS, 12)
    # a sentence of n tokens takes n steps and one for the end mark, unless the limit came first
    steps = [min(len(ids) + 1, 12) for ids in written]
    assert model.rows == [sum(step <= taken for taken in steps) for step in range(1, max(steps) + 1)]
    assert model.sentences == model.rows
    assert len(set(model.rows)) > 3


def test_max_length_is_the_most_that_is_written() -> None:
    model = toy(1, end_bias=-1e4)
    limits = torch.tensor([1, 5, 3])
    assert [len(ids) for ids in greedy(model, source_of(toy_rows(1, 3)), MARKS, limits)] == [1, 5, 3]
    assert [len(ids) for ids in greedy(model, source_of(toy_rows(1, 3)), MARKS, 4)] == [4, 4, 4]


def test_padding_and_begin_are_never_written() -> None:
    model = toy(1, end_bias=1.0)
    model.bias[[MARKS.pad_id, MARKS.bos_id]] = 1e3
    written = greedy(model, source_of(toy_rows(1, 5)), MARKS, 12)
    assert not {MARKS.pad_id, MARKS.bos_id} & {token for ids in written for token in ids}
    assert any(written)


def test_of_equal_tokens_the_lower_id_is_written() -> None:
    model = toy(1, sharpness=0.0)
    marks = ToyMarks(pad_id=0, bos_id=2, eos_id=7)
    assert greedy(model, source_of(toy_rows(1, 2)), marks, 3) == [[1, 1, 1], [1, 1, 1]]


def test_the_model_is_left_as_it_was_found() -> None:
    torch.manual_seed(2)
    model = Toy(replace(CONFIG, dropout=0.5), 2.5).train()
    model.decoder.eval()  # a mode of its own, as when a part is frozen
    rows = toy_rows(2, 5)
    state = torch.get_rng_state()
    first = greedy(model, source_of(rows), MARKS, 8)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training and model.encoder.training and not model.decoder.training
    assert first == greedy(model.eval(), source_of(rows), MARKS, 8)


class _Broken(Toy):
    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        raise DataError("as if something went wrong in the middle")


def test_mode_comes_back_after_an_error_too() -> None:
    model = _Broken(CONFIG, 1.0).train()
    with pytest.raises(DataError):
        greedy(model, source_of([[3]]), MARKS, 8)
    assert model.training and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_no_sentence_is_no_work() -> None:
    model = watch(toy(1))
    assert greedy(model, torch.zeros(0, 4, dtype=torch.long), MARKS, 8) == []
    assert model.sources == []


def test_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_length must be at least 1: got 0; the end mark takes 1"):
        greedy(toy(1), source_of([[3]]), MARKS, 0)
    with pytest.raises(ConfigError, match="must not pass the model's learned positions: got 65"):
        greedy(toy(1, positions="learned"), source_of([[3]]), MARKS, 65)
    assert len(greedy(toy(1, -1e4, positions="learned"), source_of([[3]]), MARKS, 64)[0]) == 64
    assert len(greedy(toy(1, -1e4), source_of([[3]]), MARKS, 65)[0]) == 65
