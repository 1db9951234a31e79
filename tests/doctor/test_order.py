"""The ways in which order is told, and what re-arranging the tokens does without any."""

from __future__ import annotations

import pytest
import torch

from doctor.place_model import probe_of
from headwise.doctor.order import could_vary, order_enters, shuffled
from headwise.doctor.positions import additions


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
