"""What every search obeys."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from decode.toys import CONFIG, MARKS, Toy, ToyMarks, source_of, toy
from headwise.decode.rules import (
    default_limit,
    evaluating,
    forbid_marks,
    forbidden_ids,
    length_limits,
    to_lists,
)
from headwise.errors import ConfigError


def test_one_limit_stands_for_all_and_many_for_each() -> None:
    source = source_of([[3], [4], [5]])
    assert length_limits(toy(1), source, 7).tolist() == [7, 7, 7]
    assert length_limits(toy(1), source, torch.tensor([1, 9, 2])).tolist() == [1, 9, 2]
    assert length_limits(toy(1), source[:0], 0).tolist() == []


def test_a_limit_that_cannot_be_is_refused() -> None:
    source = source_of([[3], [4]])
    with pytest.raises(ConfigError, match="max_length must be at least 1: got 0; the end mark takes 1"):
        length_limits(toy(1), source, torch.tensor([4, 0]))
    learned = toy(1, positions="learned")
    assert length_limits(learned, source, 64).tolist() == [64, 64]
    with pytest.raises(ConfigError, match="got 65, the model has 64; ask for 64 or less"):
        length_limits(learned, source, torch.tensor([1, 65]))
    assert length_limits(toy(1), source, 65).tolist() == [65, 65]  # sines reach anywhere


def test_the_default_limit_follows_the_source_up_to_the_models_own() -> None:
    model = toy(1)  # max_length 64
    assert [default_limit(model, tokens) for tokens in (1, 10, 21, 22, 23, 64)] == [22, 40, 62, 64, 64, 64]


def test_marks_are_forbidden_in_place_and_nothing_else_moves() -> None:
    logits = torch.randn(3, 6)
    before = logits.clone()
    forbid_marks(logits, MARKS)
    marks = [MARKS.pad_id, MARKS.bos_id]
    assert torch.equal(logits[:, marks], torch.full((3, 2), -torch.inf))
    others = [token for token in range(6) if token not in marks]
    assert MARKS.eos_id in others and torch.equal(logits[:, others], before[:, others])


@pytest.mark.parametrize(
    ("pad", "begin", "end", "forbidden"),
    [(0, 1, 2, [0, 1]), (0, 0, 2, [0]), (1, 2, 2, [1]), (2, 1, 2, [1])],
    ids=["ours", "T5 and Marian", "BART", "padding that ends"],
)
def test_what_ends_a_sentence_may_be_written(pad: int, begin: int, end: int, forbidden: list[int]) -> None:
    marks = ToyMarks(pad, begin, end)
    assert forbidden_ids(marks) == forbidden
    logits = torch.zeros(2, 4)
    forbid_marks(logits, marks)
    assert logits.isinf().any(0).nonzero().flatten().tolist() == forbidden


def test_lists_are_what_the_tensor_holds() -> None:
    assert to_lists(torch.tensor([[1, 2], [3, 4]])) == [[1, 2], [3, 4]]
    assert to_lists(torch.zeros(0, 2)) == []


def test_law_a_model_at_rest_draws_no_random_number_and_keeps_no_graph() -> None:
    torch.manual_seed(1)
    model = Toy(replace(CONFIG, dropout=0.5), 1.0).train()
    model.decoder.eval()  # a mode of its own, as when a part is frozen
    modes = [part.training for part in model.modules()]
    source, target = source_of([[3, 4]]), torch.tensor([[1, 5]])
    state = torch.get_rng_state()
    with evaluating(model):
        assert not any(part.training for part in model.modules())
        first, second = model(source, target), model(source, target)
    assert torch.equal(first, second) and not first.requires_grad
    assert torch.equal(torch.get_rng_state(), state)
    assert [part.training for part in model.modules()] == modes and any(modes) and not all(modes)
    assert not torch.equal(
        model(source, target), model(source, target)
    )  # else there was nothing to rest from


def test_modes_come_back_after_an_error() -> None:
    model = toy(1).train()
    with pytest.raises(ZeroDivisionError), evaluating(model):
        _ = 1 / 0
    assert all(part.training for part in model.modules()) and not torch.is_inference_mode_enabled()
