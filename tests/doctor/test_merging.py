"""What becomes of the heads: joined by time, joined across it, or added up."""

from __future__ import annotations

import pytest
from torch import Tensor

from doctor.head_model import H, Model, Split, join, join_across_time, probe_of
from headwise.doctor.merging import merged, shares, times_in, vector_times


@pytest.mark.parametrize(("put", "most"), [(join, 1), (join_across_time, H)])
def test_a_vector_holds_one_time_unless_heads_are_joined_across_time(put: Split, most: int) -> None:
    probe = probe_of(Model(put=put))
    (group,) = merged(probe)
    held = [int(vector_times(*found).max()) for found in times_in(probe, group.members[0], group.way)]
    assert max(held) == most


@pytest.mark.parametrize("summed", [False, True])
def test_heads_share_columns_only_where_they_are_added(summed: bool) -> None:
    def add_up(y: Tensor) -> Tensor:
        return y.sum(1).repeat(1, 1, H)

    probe = probe_of(Model(put=add_up if summed else join))
    (group,) = merged(probe)
    assert group.end is not None and group.count(probe) == H
    assert bool((shares(probe, group, *group.end).amin(0) > 0.25).all()) is summed
