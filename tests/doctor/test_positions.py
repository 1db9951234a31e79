"""Position tables are told by what moves them, in every layout; order is told by what re-arranging does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.order import could_vary, order_enters, shuffled
from headwise.doctor.positions import additions, is_fixed, lookup, made_line, root, tables
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

VOCAB, WIDTH, LONGEST = 23, 16, 40


class Reader(nn.Module):
    """One attention over tokens and whatever `place` adds to them."""

    def __init__(self, place: str = "table", time_major: bool = False) -> None:
        super().__init__()
        self.place, self.time_major = place, time_major
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.table = nn.Parameter(0.1 * torch.randn(LONGEST, WIDTH))
        self.zeros = nn.Parameter(torch.zeros(LONGEST, WIDTH))
        self.register_buffer("waves", torch.sin(torch.arange(LONGEST)[:, None] * torch.rand(WIDTH)))
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, VOCAB)

    def positions(self, ids: Tensor) -> Tensor | float:
        length = ids.size(0) if self.time_major else ids.size(1)
        count = torch.arange(length)
        if self.place == "none":
            return 0.0
        if self.place == "constant":
            count = torch.zeros_like(count)
        held: dict[str, Tensor] = {"waves": self.waves, "zeros": self.zeros}
        found = nn.functional.embedding(count, held.get(self.place, self.table))
        return found[:, None] if self.time_major else found

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.types(torch.zeros_like(ids))
        x = x + self.positions(ids)
        x = x.transpose(0, 1) if self.time_major else x
        scores = self.q(x) @ self.k(x).mT / WIDTH**0.5
        if self.place == "bias":
            far = torch.arange(x.size(1))
            scores = scores - 0.3 * (far[:, None] - far).abs()
        y = x + scores.softmax(-1) @ self.v(x)
        return self.out(y.transpose(0, 1) if self.time_major else y)


def probe_of(**named: Any) -> Probe:
    torch.manual_seed(0)
    model = Reader(**named)
    ids = torch.randint(0, VOCAB, (6, 15))
    layout = "time-major" if model.time_major else "batch-first"
    given = ids.T.contiguous() if model.time_major else ids
    return Probe(adapt(Subject(model, (given,), kind="encoder", layout=layout)))


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("place", ["table", "waves"])
def test_a_table_is_found_with_its_axes(place: str, time_major: bool) -> None:
    probe = probe_of(place=place, time_major=time_major)
    (found,) = tables(probe)
    assert (found.batch_axis, found.time_axis) == ((1, 0) if time_major else (0, 1))
    assert found.varies_in_time and not found.varies_in_batch and found.is_early
    assert is_fixed(probe, found.table) == (place == "waves")
    assert root(found.table).name == ("buffer waves" if place == "waves" else "parameter table")
    expected = probe.model.get_buffer("waves") if place == "waves" else probe.model.get_parameter("table")
    assert torch.equal(found.by_position, expected[: probe.length])


def test_the_line_of_positions_is_where_they_are_counted() -> None:
    probe = probe_of(place="table")
    (found,) = tables(probe)
    held = lookup(found.table)
    assert held is not None
    place = made_line(probe, held[1])
    assert place is not None and place.function == "Reader.positions"


def test_types_are_no_positions() -> None:
    probe = probe_of(place="none")
    assert additions(probe) and not tables(probe)
    assert not any(could_vary(probe, added) for added in additions(probe))


@pytest.mark.parametrize(("place", "can"), [("zeros", True), ("constant", False)])
def test_a_table_of_zeros_can_learn_what_one_row_for_all_cannot(place: str, can: bool) -> None:
    probe = probe_of(place=place)
    added = additions(probe)[-1]
    assert not added.varies_in_time
    assert could_vary(probe, added) is can


@pytest.mark.parametrize(
    ("place", "ways"),
    [
        ("table", ["a table is added"]),
        ("waves", ["a table is added"]),
        ("zeros", ["a table is added"]),
        ("bias", ["a table is added", "the scores carry a bias"]),
        ("constant", []),
        ("none", []),
    ],
)
def test_the_ways_of_order(place: str, ways: list[str]) -> None:
    probe = probe_of(place=place)
    assert probe.main is not None
    assert order_enters(probe, probe.main) == ways


@pytest.mark.parametrize(
    ("place", "blind"), [("none", True), ("constant", True), ("table", False), ("bias", False)]
)
def test_what_knows_no_order_is_re_arranged_with_its_tokens(place: str, blind: bool) -> None:
    probe = probe_of(place=place)
    assert probe.main is not None
    logits, order = shuffled(probe, probe.main)
    assert (
        sorted(order.tolist()) == list(range(probe.length))
        and order[0] == 0
        and order[-1] == probe.length - 1
    )
    assert torch.allclose(logits, probe.base.logits[:, order], atol=1e-12) is blind
