"""Turned rightly, in either pairing, scores tell the distance alone; wrong twins are told by matrices."""

from __future__ import annotations

import pytest

from doctor.turning_model import (
    Turn,
    by_complex,
    by_halves,
    by_neighbours,
    in_part,
    mismatched,
    probe_of,
    two_cosines,
    without_minus,
)
from headwise.doctor.probe import Probe
from headwise.doctor.turning import fault, matrices_of, rotations, with_same_token


def off(probe: Probe) -> float:
    """How far the scores of equal tokens are from a function of the distance."""
    same = with_same_token(probe, probe.sites[0])
    assert same is not None
    raw = same[0] @ same[1].mT
    return float((raw[:, 1:, 1:] - raw[:, :-1, :-1]).abs().max() / raw.abs().max())


@pytest.mark.parametrize("turn", [by_halves, by_neighbours, by_complex, in_part])
def test_right_turns_tell_the_distance_alone(turn: Turn) -> None:
    probe = probe_of(turn)
    queries, keys, values = rotations(probe, probe.sites[0])
    assert queries.factors and keys.factors and not values.factors
    assert off(probe) < 1e-6
    held = matrices_of(probe, queries, probe.sites[0].q_at)
    assert held is None or fault(held) is None


@pytest.mark.parametrize(
    ("turn", "where"), [(mismatched, "tables"), (without_minus, "partner"), (two_cosines, "product")]
)
def test_a_wrong_turn_is_told_by_its_matrices(turn: Turn, where: str) -> None:
    probe = probe_of(turn)
    assert off(probe) > 0.02
    held = matrices_of(probe, rotations(probe, probe.sites[0])[0], probe.sites[0].q_at)
    assert held is not None
    wrong = fault(held)
    assert wrong is not None and wrong.where == where


def test_turned_values_differ_from_place_to_place() -> None:
    for turned in (False, True):
        probe = probe_of(by_halves, turned)
        same = with_same_token(probe, probe.sites[0])
        assert same is not None
        v = same[2]
        assert bool(((v - v[:, :1]).abs() > 1e-9).any()) is turned
