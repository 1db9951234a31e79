"""Position tables are told by what moves them, in every layout."""

from __future__ import annotations

import pytest
import torch

from doctor.place_model import probe_of
from headwise.doctor.order import could_vary
from headwise.doctor.positions import additions, is_fixed, lookup, made_line, table_behind, tables


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("place", ["table", "waves"])
def test_a_table_is_found_with_its_axes(place: str, time_major: bool) -> None:
    probe = probe_of(place=place, time_major=time_major)
    (found,) = tables(probe)
    assert (found.batch_axis, found.time_axis) == ((1, 0) if time_major else (0, 1))
    assert found.varies_in_time and not found.varies_in_batch and found.is_early
    assert is_fixed(probe, found.table) == (place == "waves")
    assert table_behind(found.table).name == ("buffer waves" if place == "waves" else "parameter table")
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
