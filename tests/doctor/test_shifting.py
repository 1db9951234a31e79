"""Counted by words, positions do not move with padding; counted by places, they may."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.shifting import shifted
from headwise.doctor.subject import Subject

VOCAB, WIDTH = 21, 16


class Counter(nn.Module):
    def __init__(self, count: str) -> None:
        super().__init__()
        self.count = count
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(40, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True)
        self.out = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        keep = ids != 0
        here = torch.arange(ids.size(1))
        places = {
            "places": here,
            "backwards": here.flip(0),
            "words": (keep.cumsum(1) - 1).clamp(min=0),
            "pads": (~keep).cumsum(1) + here,
        }
        return self.out(
            self.layer(self.words(ids) + self.places(places[self.count]), src_key_padding_mask=~keep)
        )


@pytest.mark.parametrize(
    ("count", "on_the_left", "on_the_right"),
    [("places", True, False), ("words", False, False), ("backwards", False, True), ("pads", True, False)],
)
def test_what_shifts_positions(count: str, on_the_left: bool, on_the_right: bool) -> None:
    torch.manual_seed(0)
    ids = torch.randint(1, VOCAB, (5, 14))
    ids[1, 9:] = 0
    probe = Probe(adapt(Subject(Counter(count), (ids,), kind="encoder", pad_id=0)))
    assert probe.main is not None
    for left, expected in ((True, on_the_left), (False, on_the_right)):
        tested = shifted(probe, probe.main, left)
        assert tested is not None and tested.tables
        assert (tested.shift is not None) is expected
        if tested.shift is not None and tested.shift.at is not None:
            assert tested.shift.at.function == "Counter.forward"
