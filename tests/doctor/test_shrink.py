"""Of a large batch a part is examined, targets and masks cut alike; the lines come from the whole."""

from __future__ import annotations

import linecache
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt, flatten
from headwise.doctor.blame import made_places
from headwise.doctor.examine import _probe
from headwise.doctor.made import Making
from headwise.doctor.shrink import LENGTH, LENGTH_LARGE, ROWS, ROWS_LARGE, shrink
from headwise.doctor.subject import Subject
from headwise.doctor.trace import Value

VOCAB, WIDTH, PAD = 101, 8, 0
COUNT, TIME = 40, 70


class Net(nn.Module):
    def __init__(self, length: int | None = None) -> None:
        super().__init__()
        self.words, self.out, self.length = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB), length

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if self.length is not None and ids.shape[1] != self.length:
            raise ValueError(f"{self.length} positions, always")
        return self.out(self.words(ids))


def rows(count: int = COUNT, time: int = TIME) -> Tensor:
    """Row r holds r + 1 everywhere but in its pads, which are as many as r % 5."""
    ids = torch.arange(1, count + 1)[:, None].repeat(1, time)
    for row in range(count):
        ids[row, time - row % 5 :] = PAD
    return ids


def places(count: int = COUNT, time: int = TIME) -> Tensor:
    """A number of its own for each row and position."""
    return torch.arange(count * time).view(count, time)


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize(
    ("is_large", "most", "length"), [(False, ROWS, LENGTH), (True, ROWS_LARGE, LENGTH_LARGE)]
)
def test_inputs_masks_and_targets_are_cut_to_the_same_rows_and_positions(
    is_large: bool, most: int, length: int, time_major: bool
) -> None:
    def turn(held: Tensor) -> Tensor:
        return held.T.contiguous() if time_major else held

    ids = places() % 100 + 1
    mask = (places() % 3 > 0).long()
    layout = "time-major" if time_major else "batch-first"
    subject = Subject(
        Net(),
        {"ids": turn(ids), "attention_mask": turn(mask)},
        kind="encoder",
        targets=turn(places()),
        layout=layout,
    )
    part = shrink(adapt(subject), is_large)
    own, kept = (turn(part.subject.inputs[name]) for name in ("ids", "attention_mask"))
    goal = turn(part.subject.targets)
    assert goal.shape == own.shape == kept.shape == (most, length)
    assert torch.equal(own, goal % 100 + 1) and torch.equal(kept, (goal % 3 > 0).long())
    assert torch.equal(goal, goal[:, :1] + torch.arange(length))  # the first positions, in order
    assert part.handed is subject and part.whole is subject


def test_rows_with_the_most_padding_and_with_the_least_are_taken() -> None:
    ids = rows(COUNT, LENGTH)
    part = shrink(adapt(Subject(Net(), ids, kind="encoder", pad_id=PAD)), False)
    pads = (part.subject.inputs == PAD).sum(1)
    assert sorted(pads.tolist()) == [0] * (ROWS // 2) + [4] * (ROWS // 2)
    assert len({row[0] for row in part.subject.inputs.tolist()}) == ROWS  # no row twice


def test_labels_of_rows_are_cut_by_rows_alone() -> None:
    part = shrink(adapt(Subject(Net(), rows(), kind="encoder", targets=torch.arange(1, COUNT + 1))), False)
    assert torch.equal(part.subject.targets, part.subject.inputs[:, 0])


@pytest.mark.parametrize(
    "more",
    [
        {"inputs": rows(8, 16)},  # small already
        {"targets": [1, 2, 3]},
        {"targets": torch.tensor(1.0)},
        {"targets": torch.zeros(COUNT + 1, TIME)},
        {"targets": torch.zeros(COUNT, TIME - 1)},
    ],
)
def test_what_is_small_or_cannot_be_cut_alike_is_left(more: dict[str, Any]) -> None:
    given = adapt(replace(Subject(Net(), rows(), kind="encoder"), **more))
    assert shrink(given, False) is given


def test_a_part_that_does_not_run_falls_back_to_the_whole() -> None:
    easy, fixed = (adapt(Subject(Net(length), rows(), kind="encoder")) for length in (None, TIME))
    probe = _probe(easy, None, None)
    assert probe.failure is None and probe.adapted.whole is not None
    assert probe.given.logits.shape[:2] == (ROWS, LENGTH)
    probe = _probe(fixed, None, None)
    assert probe.failure is None and probe.adapted is fixed
    assert probe.given.logits.shape[:2] == (COUNT, TIME)
    broken = _probe(adapt(Subject(Net(3), rows(), kind="encoder")), None, None)
    assert isinstance(broken.failure, ValueError)


def test_lines_of_inputs_and_targets_come_from_the_whole() -> None:
    with Making() as making:
        ids = torch.randint(1, VOCAB, (COUNT, TIME))  # INPUT
        goal = ids.roll(-1, 1)  # TARGETS
    probe = _probe(adapt(Subject(Net(), ids, kind="decoder", targets=goal)), making, None)
    assert probe.subject.targets.shape == (ROWS, LENGTH) and flatten(probe.adapted.handed.inputs) == [ids]
    for name, mark in (("input 0", "INPUT"), ("targets", "TARGETS")):
        value = Value(0, ids, (), name=name)
        lines = [linecache.getline(place.file, place.line) for place in made_places(probe, value)]
        assert any(line.rstrip().endswith(f"# {mark}") for line in lines)


def test_rows_that_are_padded_on_the_left_keep_their_last_positions() -> None:
    """The first positions of a short row would be nothing but padding."""
    ids = rows().flip(1)
    ids[0, : TIME - 3] = PAD
    lengths = (ids != PAD).sum(1)
    subject = Subject(
        Net(), (ids, lengths), call=lambda model, ids, lengths: model(ids), targets=places(), pad_id=PAD
    )
    part = shrink(adapt(subject), False)
    held, counts = flatten(part.subject.inputs)
    assert held.shape == (ROWS, LENGTH) and int(counts.min()) == 3
    assert torch.equal((held != PAD).sum(1), counts)
    first = part.subject.targets[:, 0] % TIME
    assert bool((first == TIME - LENGTH).all()) and part.subject.targets.shape == held.shape
