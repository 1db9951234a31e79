from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest
import torch

from decode.toys import (
    MARKS,
    NothingMovesCache,
    Toy,
    ToyMarks,
    every_hypothesis,
    plain_beam_search,
    source_of,
    toy,
    toy_rows,
    watch,
)
from headwise.decode.beam import Hypothesis, beam_search, gnmt_penalty
from headwise.decode.greedy import greedy
from headwise.errors import ConfigError

ALPHAS = [0.0, 0.6, 1.0, 2.0]


def agree(found: Sequence[Hypothesis], expected: Sequence[Hypothesis], tolerance: float) -> bool:
    """The same hypotheses in the same order; those whose scores differ by less may change places."""
    if len(found) != len(expected):
        return False
    for ours, theirs in zip(found, expected, strict=True):
        alike = [h for h in expected if abs(h.score - theirs.score) < tolerance]
        same = next((h for h in alike if h.ids == ours.ids and h.is_finished == ours.is_finished), None)
        if same is None or not math.isclose(ours.score, same.score, rel_tol=0, abs_tol=tolerance):
            return False
        if not math.isclose(ours.log_probability, same.log_probability, rel_tol=0, abs_tol=tolerance):
            return False
    return True


def test_the_penalty_is_the_formula_of_the_paper() -> None:
    assert gnmt_penalty(7.0, 0.0) == 1
    assert gnmt_penalty(7.0, 1.0) == 2
    assert gnmt_penalty(19.0, 0.5) == 2
    assert gnmt_penalty(1.0, 3.0) == 1
    lengths = torch.tensor([1.0, 7.0, 19.0])
    assert gnmt_penalty(lengths, 0.5).tolist() == pytest.approx([1, math.sqrt(2), 2])


@pytest.mark.parametrize(
    "marks", [MARKS, ToyMarks(0, 0, 2), ToyMarks(0, 2, 2)], ids=["ours", "T5 and Marian", "BART"]
)
@torch.no_grad()
def test_probabilities_are_the_models_own_however_a_target_begins(marks: ToyMarks) -> None:
    model, source = toy(3, end_bias=6.0), source_of([[3, 4, 5]])
    found = beam_search(model, source, marks, 4, 5, n_best=4)[0]
    assert any(h.is_finished for h in found)
    for h in found:
        written = [*h.ids, *([marks.eos_id] if h.is_finished else [])]
        log_p = model(source, torch.tensor([[marks.bos_id, *written]])).log_softmax(-1)[0]
        expected = sum(float(log_p[place, token]) for place, token in enumerate(written))
        assert h.log_probability == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_one_is_greedy(seed: int) -> None:
    model = toy(seed, end_bias=1.0)
    source = source_of(toy_rows(seed, 9))
    limits = torch.tensor([1, 2, 12, 12, 12, 12, 12, 12, 12])
    written = greedy(model, source, MARKS, limits)
    for alpha in (0.0, 2.0):
        found = beam_search(model, source, MARKS, 1, limits, alpha)
        assert [[h.ids for h in row] for row in found] == [[ids] for ids in written]


# Three words and the end mark: 1 + 3 + 9 + 27 sentences that end within four steps, 81 that do not.
LEXICON = 6
EVERY = 40 + 81


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_beam_with_room_for_everything_is_exhaustive_search(seed: int, alpha: float) -> None:
    model = toy(seed, end_bias=1.0, vocab_size=LEXICON).double()
    rows = toy_rows(seed, 3, LEXICON)
    expected = [every_hypothesis(model, row, 4, alpha) for row in rows]
    assert [len(row) for row in expected] == [EVERY] * 3
    for n in (1, 7, 40, EVERY):
        found = beam_search(model, source_of(rows), MARKS, 128, 4, alpha, n)
        for ours, theirs in zip(found, expected, strict=True):
            assert agree(ours, theirs[:n], 1e-10)


def test_another_length_penalty_is_another_ranking() -> None:
    model = toy(1, end_bias=1.0, vocab_size=LEXICON).double()
    row = toy_rows(1, 3, LEXICON)[1]
    found = beam_search(model, source_of([row]), MARKS, 128, 4, 1.0, 40)[0]
    assert agree(found, every_hypothesis(model, row, 4, 1.0)[:40], 1e-10)
    for wrong in (0.0, 0.9, 1.1):
        assert not agree(found, every_hypothesis(model, row, 4, wrong)[:40], 1e-10)
    # a penalty that forgets the end mark ranks otherwise too
    forgetful = [dataclasses.replace(h, score=h.log_probability / ((5 + len(h.ids)) / 6)) for h in found]
    assert not agree(found, forgetful, 1e-10)


@pytest.mark.parametrize(("seed", "beam_size"), [(1, 2), (2, 3), (5, 5)])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_batch_is_what_one_would_write_first_for_each_sentence(
    seed: int, beam_size: int, alpha: float
) -> None:
    model = toy(seed, end_bias=1.0).double()
    rows = toy_rows(seed, 6)
    limits = [1, 2, 9, 9, 9, 9]
    expected = [
        plain_beam_search(model, row, beam_size, n, alpha) for row, n in zip(rows, limits, strict=True)
    ]
    for n in (1, beam_size):
        found = beam_search(model, source_of(rows), MARKS, beam_size, torch.tensor(limits), alpha, n)
        for ours, theirs in zip(found, expected, strict=True):
            assert agree(ours, theirs[:n], 1e-10)


def same_results(a: list[list[Hypothesis]], b: list[list[Hypothesis]]) -> bool:
    return len(a) == len(b) and all(agree(x, y, 1e-4) for x, y in zip(a, b, strict=True))


def test_order_padding_and_neighbours_change_nothing() -> None:
    model = toy(1, end_bias=1.0)
    rows = toy_rows(1, 9)
    limits = torch.tensor([3, 12, 12, 12, 7, 12, 12, 12, 12])

    def search(source: torch.Tensor, limits: torch.Tensor) -> list[list[Hypothesis]]:
        return beam_search(model, source, MARKS, 4, limits, 1.0, 3)

    together = search(source_of(rows), limits)
    assert len({tuple(row[0].ids) for row in together}) > 4
    assert same_results(search(source_of(rows[::-1]), limits.flip(0)), together[::-1])
    assert not same_results(search(source_of(rows[::-1]), limits.flip(0)), together)
    assert same_results(search(source_of(rows, more_padding=9), limits), together)
    alone = [search(source_of([row]), limits[i : i + 1])[0] for i, row in enumerate(rows)]
    assert same_results(alone, together)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_cached_is_uncached_at_every_step(dtype: torch.dtype, tolerance: float, norm: str) -> None:
    model = watch(toy(1, end_bias=1.0, norm=norm).to(dtype))
    beam_search(model, source_of(toy_rows(1, 9)), MARKS, 4, 12, 1.0, 4)
    assert len(model.rows) > 6 and len(set(model.rows)) > 2
    assert model.largest_difference < tolerance


def test_a_cache_that_does_not_follow_is_found() -> None:
    model = watch(toy(1, end_bias=1.0).double(), NothingMovesCache)
    beam_search(model, source_of(toy_rows(1, 9)), MARKS, 4, 12, 1.0, 4)
    assert model.largest_difference > 0.01


def test_sentences_leave_and_the_source_is_stored_once_for_each() -> None:
    model = watch(toy(1, end_bias=1.0))
    rows = toy_rows(1, 9)
    limits = torch.tensor([1, 2, 3, 4, 12, 12, 12, 12, 12])
    beam_search(model, source_of(rows), MARKS, 4, limits)
    assert model.sentences[:5] == sorted(model.sentences[:5], reverse=True)
    assert [9 - n for n in model.sentences[:5]] >= [0, 1, 2, 3, 4]
    assert model.rows == [4 * n for n in model.sentences]


def test_a_sentence_is_done_when_nothing_better_can_come() -> None:
    # After one word the end is all but certain. So it has log P near 0 and no other comes close.
    model = watch(toy(1, end_bias=60.0))
    model.bias[MARKS.eos_id] = 60.0
    found = beam_search(model, source_of(toy_rows(1, 3)), MARKS, 4, 50)
    assert [[h.ids for h in row] for row in found] == [[[]], [[]], [[]]]
    assert len(model.rows) == 1
    # Asked for two, it has to go on until a second one has ended.
    found = beam_search(model, source_of(toy_rows(1, 3)), MARKS, 4, 50, n_best=2)
    assert [[len(h.ids) for h in row] for row in found] == [[0, 1]] * 3
    assert len(model.rows) == 3


def test_n_best_are_different_and_sorted() -> None:
    model = toy(2, end_bias=1.0)
    found = beam_search(model, source_of(toy_rows(2, 9)), MARKS, 6, 8, 1.0, 6)
    for row in found:
        assert len({tuple(h.ids) for h in row}) == len(row) == 6
        ranks = [(not h.is_finished, -h.score) for h in row]
        assert ranks == sorted(ranks)
        for h in row:
            length = len(h.ids) + h.is_finished
            assert h.score == pytest.approx(h.log_probability / ((5 + length) / 6), abs=1e-5)
            assert length <= 8 and (h.is_finished or length == 8)
    assert {h.is_finished for row in found for h in row} == {True, False}
    best = beam_search(model, source_of(toy_rows(2, 9)), MARKS, 6, 8, 1.0, 1)
    assert same_results(best, [row[:1] for row in found])


def test_what_max_length_cuts_off_gets_no_end_mark_and_ranks_last() -> None:
    model = toy(1, end_bias=-1e4)
    limits = torch.tensor([1, 5, 3])
    found = beam_search(model, source_of(toy_rows(1, 3)), MARKS, 3, limits)
    assert [(len(row[0].ids), row[0].is_finished) for row in found] == [(1, False), (5, False), (3, False)]
    # the end mark is a poor choice at each step, and the only sentence that ends is the best one still
    model = toy(1, end_bias=-1.0, vocab_size=LEXICON)
    found = beam_search(model, source_of([[3, 4]]), MARKS, 4, 1, 0.0, 4)
    assert [h.is_finished for h in found[0]] == [True, False, False, False]
    assert found[0][0].score < found[0][1].score


def test_fewer_are_returned_only_where_fewer_exist() -> None:
    model = toy(1, end_bias=1.0, vocab_size=LEXICON)
    found = beam_search(model, source_of([[3, 4], [5]]), MARKS, 50, torch.tensor([1, 2]), 1.0, 50)
    assert [len(row) for row in found] == [1 + 3, 1 + 3 + 9]
    # one word: places of the beam stay empty, and must not be taken for sentences that end
    found = beam_search(toy(1, vocab_size=4), source_of([[]]), MARKS, 8, 7, 1.0, 8)
    assert sorted(len(h.ids) for h in found[0] if h.is_finished) == [0, 1, 2, 3, 4, 5, 6]
    assert found[0][-1].ids == [3] * 7 and not found[0][-1].is_finished
    found = beam_search(toy(1, vocab_size=3), source_of([[]]), MARKS, 3, 4, 1.0, 3)
    assert [(h.ids, h.is_finished) for h in found[0]] == [([], True)]


def test_padding_and_begin_are_never_written_and_do_not_change_log_p() -> None:
    plain = toy(1, end_bias=1.0).double()
    rows = toy_rows(1, 5)
    for likely in (0.0, 3.0, 1e3):
        plain.bias[[MARKS.pad_id, MARKS.bos_id]] = likely
        found = beam_search(plain, source_of(rows), MARKS, 3, 6, 0.0, 3)
        for row, hypotheses in zip(rows, found, strict=True):
            assert not {0, 1} & {token for h in hypotheses for token in h.ids}
            assert agree(hypotheses, plain_beam_search(plain, row, 3, 6, 0.0)[:3], 1e-8)


@pytest.mark.parametrize("vocab_size", [8, 1000])
def test_of_equal_hypotheses_those_with_lower_ids_are_kept(vocab_size: int) -> None:
    model = toy(1, sharpness=0.0, vocab_size=vocab_size)
    marks = ToyMarks(pad_id=0, bos_id=2, eos_id=7)
    found = beam_search(model, source_of([[3, 4], [3]]), marks, 3, 3, 0.0, 3)
    assert [[h.ids for h in row] for row in found] == [[[1, 1, 1], [1, 1, 3], [1, 1, 4]]] * 2
    # three levels of logits: ties at every rank, the last one that is taken included
    model.bias.copy_(torch.randint(0, 3, (vocab_size,)))
    found = beam_search(model.double(), source_of([[3, 4]]), MARKS, 5, 2, 1.0, 5)
    expected = plain_beam_search(model, [3, 4], 5, 2, 1.0)
    assert [h.ids for h in found[0]] == [h.ids for h in expected[:5]]


def test_scores_are_float32_at_least() -> None:
    model = toy(1, end_bias=1.0).bfloat16()
    found = beam_search(model, source_of(toy_rows(1, 4)), MARKS, 3, 8, 1.0, 3)
    log_p = torch.tensor([h.log_probability for row in found for h in row])
    assert not torch.equal(log_p, log_p.bfloat16().float())


def test_the_model_is_left_as_it_was_found() -> None:
    model = Toy(dataclasses.replace(toy(2).config, dropout=0.5), 2.5).train()
    source = source_of(toy_rows(2, 5))
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    first = beam_search(model, source, MARKS, 3, 8)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training and model.encoder.training
    assert first == beam_search(model.eval(), source, MARKS, 3, 8)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_no_sentence_is_no_work() -> None:
    model = watch(toy(1))
    assert beam_search(model, torch.zeros(0, 4, dtype=torch.long), MARKS, 3, 8) == []
    assert model.sources == []


@pytest.mark.parametrize(
    ("beam_size", "max_length", "alpha", "n_best", "message"),
    [
        (0, 8, 1.0, 1, "beam_size must be at least 1: got 0"),
        (2, 0, 1.0, 1, "max_length must be at least 1: got 0; the end mark takes 1"),
        (2, 8, -0.1, 1, "length_penalty must lie between 0 and 10: got -0.1"),
        (2, 8, math.nan, 1, "length_penalty must lie between 0 and 10: got nan"),
        (2, 8, 1000.0, 1, "length_penalty must lie between 0 and 10: got 1000.0"),
        (2, 8, 1.0, 3, "got n_best=3, beam_size=2; raise beam_size to 3 or ask for fewer"),
        (2, 8, 1.0, 0, "n_best must lie between 1 and beam_size: got n_best=0, beam_size=2; 1 asks for"),
    ],
)
def test_what_cannot_be_is_refused(
    beam_size: int, max_length: int, alpha: float, n_best: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        beam_search(toy(1), source_of([[3]]), MARKS, beam_size, max_length, alpha, n_best)
