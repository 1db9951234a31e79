"""The one place where targets shift."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path

import pytest
import torch

import headwise
from headwise.train.batch import Batch, make_batch


@dataclass(frozen=True)
class Ids:
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2


def test_the_input_begins_and_the_labels_end() -> None:
    batch = make_batch([[5, 6, 7], [8]], [[10, 11], [12, 13, 14]], Ids())
    assert batch.source.tolist() == [[5, 6, 7, 2], [8, 2, 0, 0]]
    assert batch.decoder_input.tolist() == [[1, 10, 11, 0], [1, 12, 13, 14]]
    assert batch.labels.tolist() == [[10, 11, 2, 0], [12, 13, 14, 2]]
    assert {part.dtype for part in vars(batch).values()} == {torch.int64}


def test_each_position_learns_the_next_token() -> None:
    batch = make_batch([[5]] * 3, [[10, 11, 12], [13], [14, 15]], Ids())
    shifted, labels = batch.decoder_input[:, 1:], batch.labels[:, :-1]
    is_token = shifted != 0
    assert torch.equal(shifted[is_token], labels[is_token])
    # as many inputs as labels: padding stands at the same places
    assert torch.equal(batch.decoder_input == 0, batch.labels == 0)


def test_other_marks_are_used_as_given() -> None:
    batch = make_batch([[5], []], [[6], []], Ids(pad_id=9, bos_id=8, eos_id=7))
    assert batch.source.tolist() == [[5, 7], [7, 9]]
    assert batch.decoder_input.tolist() == [[8, 6], [8, 9]]
    assert batch.labels.tolist() == [[6, 7], [7, 9]]


def test_a_batch_cannot_be_changed() -> None:
    batch = make_batch([[5]], [[6]], Ids())
    with pytest.raises(FrozenInstanceError):
        batch.source = batch.labels  # type: ignore[misc]


def test_nothing_else_makes_a_batch() -> None:
    """A second shift is the classic fault: every Batch comes from make_batch."""
    users = []
    for path in Path(headwise.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == Batch.__name__
            ):
                users.append(path.name)
    assert users == ["batch.py"]
