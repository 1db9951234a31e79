"""Marks put on projected vectors are read off where they arrive, however the code moves them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from doctor.head_model import DH, D, H, Model, cut, probe_of, scramble
from headwise.doctor.heads import (
    NONE,
    SEVERAL,
    breaking_op,
    head_count,
    heads,
    is_broken,
    is_one,
    marked,
    numbered,
    projections,
    row_of_vector,
)
from headwise.doctor.trace import Recording, Value, recording


def record_of(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Recording, Value, Value]:
    start = x * 1.0
    with torch.no_grad(), recording(None, [x]) as record:
        start = x * 1.0
        end = function(start)
    first, last = record.value_of(start), record.value_of(end)
    assert first is not None and last is not None
    return record, first, last


def test_a_mark_arrives_where_its_element_went() -> None:
    x = torch.randn(3, 5, D, dtype=torch.float64)
    record, start, end = record_of(cut, x)
    marks = numbered(start.tensor, -1)
    (seen,) = marked(record, {start: marks}, [end], 1e-16)
    assert torch.equal(seen, cut(marks.contiguous()))


def test_what_comes_from_nowhere_or_from_several_is_told() -> None:
    x = torch.randn(2, 4, 3, dtype=torch.float64)

    def add_neighbour(t: Tensor) -> Tensor:
        return torch.cat([t[:, 1:] + t[:, :-1], torch.ones(2, 1, 3, dtype=t.dtype)], 1)

    record, start, end = record_of(add_neighbour, x)
    (seen,) = marked(record, {start: numbered(start.tensor, -1)}, [end], 1e-16)
    assert bool((seen[:, :3] == SEVERAL).all()) and bool((seen[:, 3] == NONE).all())


@pytest.mark.parametrize("turn", [False, True])
def test_each_query_comes_from_its_own_position(turn: bool) -> None:
    probe = probe_of(Model(turn=turn))
    (each,) = heads(probe)
    rows, length = probe.batch.rows, probe.length
    assert each.is_known and head_count(probe, each.site) == H
    expected = (
        torch.arange(rows * length)
        .view(rows, 1, length, 1)
        .expand(rows, H, length, DH)
        .reshape(-1, length, DH)
    )
    assert torch.equal(each.q_from % each.size, expected)


def test_a_scrambled_split_is_broken_at_its_view() -> None:
    probe = probe_of(Model(split=scramble))
    (each,) = heads(probe)
    (projection,) = projections(each.site.q_value)
    rows = row_of_vector(probe, projection)
    op = breaking_op(probe, {projection.out: projection.vectors()}, each.site.q_value, rows)
    assert op is not None and op.place is not None and op.place.function == "scramble"
    lines = each.q_from[..., 0]
    assert any(len(set(line.tolist())) < lines.shape[1] for line in lines)


def test_sound_orders_are_not_broken() -> None:
    rows, length = 3, 5
    marks = torch.arange(rows * length).view(rows, length)
    row_of = torch.arange(rows * length) // length
    wide = marks[:, None, :, None].expand(rows, H, length, 2)
    folded = wide.reshape(rows * H, length, 2)
    for sound in (marks, marks.T, wide, folded, folded.transpose(0, 1)):
        assert not is_broken(sound, row_of)
    assert is_broken(wide.transpose(1, 2).reshape(rows, H, length, 2), row_of)


@pytest.mark.parametrize("turn", [False, True])
def test_one_projection_is_told_from_two(turn: bool) -> None:
    shared, usual = (probe_of(Model(keys=name, turn=turn)) for name in ("v", "k"))
    assert is_one(shared, heads(shared)[0], "k", "v")
    assert not is_one(shared, heads(shared)[0], "q", "k")
    assert not is_one(usual, heads(usual)[0], "k", "v")
