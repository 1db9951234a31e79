"""Counts of real tokens are told from other small numbers by being right in every row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import Adapted, adapt
from headwise.doctor.marks import is_triangle, says
from headwise.doctor.subject import Subject

PAD = 0
IDS = torch.tensor([[3, 4, 5, 6, 0], [5, 3, 7, 0, 0], [4, 4, 6, 8, 2]])
COUNTS = (IDS != PAD).sum(1)


def of(inputs: Any, **more: Any) -> Adapted:
    return adapt(Subject(nn.Identity(), inputs, call=lambda model, **given: given, **more))


@pytest.mark.parametrize("name", ["lengths", "n"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_counts_that_are_right_in_every_row_are_lengths(name: str, turned: bool, left: bool) -> None:
    ids = IDS.flip(1) if left else IDS
    more: Any = {"layout": "time-major"} if turned else {}
    adapted = of({"ids": ids.T.contiguous() if turned else ids, name: COUNTS}, pad_id=PAD, **more)
    assert adapted.streams[0].count_leaf == 1 and adapted.leaves[1].role == "counts"


@pytest.mark.parametrize("wrong", [COUNTS + 1, COUNTS - 1, COUNTS.float(), COUNTS[:2], COUNTS[:, None]])
def test_other_numbers_are_not(wrong: Tensor) -> None:
    assert of({"ids": IDS, "lengths": wrong}, pad_id=PAD).streams[0].count_leaf is None


def test_without_a_pad_id_the_name_must_say_so() -> None:
    assert of({"ids": IDS, "lengths": COUNTS}).streams[0].count_leaf == 1
    assert of({"ids": IDS, "topics": COUNTS}).streams[0].count_leaf is None
    assert of({"ids": IDS, "lengths": COUNTS - 1}).streams[0].count_leaf is None  # no row is full
    full = IDS.clamp(min=1)
    assert of({"ids": full, "topics": torch.full((3,), 5)}, pad_id=PAD).streams[0].count_leaf is None


def test_source_and_target_have_counts_of_their_own() -> None:
    inputs = {"src": IDS, "tgt_lengths": COUNTS, "tgt": IDS.clone(), "src_lengths": COUNTS.clone()}
    adapted = of(inputs, pad_id=PAD)
    assert [(s.name, s.count_leaf) for s in adapted.streams] == [("source", 3), ("target", 1)]
    one = of({"src": IDS, "tgt": IDS.clone(), "lengths": COUNTS}, pad_id=PAD)
    assert [s.count_leaf for s in one.streams] == [2, None]  # the first sequence's, as usual


def test_a_triangle_is_no_padding() -> None:
    ones = torch.ones(4, 4, dtype=torch.bool)
    assert is_triangle(ones.tril()) and is_triangle(ones.triu(1)) and not is_triangle(ones)
    assert says("SRC_tokens", ("src",)) and not says("ids", ("src",))
