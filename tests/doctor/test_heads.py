"""Marks put on projected vectors are read off where they arrive, however the code moves them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
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
from headwise.doctor.merging import merged, shares, times_in, vector_times
from headwise.doctor.probe import Probe
from headwise.doctor.scales import gauge, spread
from headwise.doctor.subject import Subject
from headwise.doctor.trace import Recording, Value, recording

H, DH = 4, 6
D = H * DH
Split = Callable[[Tensor], Tensor]


def cut(x: Tensor) -> Tensor:
    return x.view(x.size(0), x.size(1), H, DH).transpose(1, 2)


def scramble(x: Tensor) -> Tensor:
    return x.view(x.size(0), H, x.size(1), DH)


def join(y: Tensor) -> Tensor:
    return y.transpose(1, 2).reshape(y.size(0), y.size(2), D)


def join_across_time(y: Tensor) -> Tensor:
    return y.reshape(y.size(0), y.size(2), D)


class Model(nn.Module):
    """One attention layer, with the step under test handed in."""

    def __init__(
        self,
        split: Split = cut,
        put: Split = join,
        scale: float = DH**-0.5,
        keys: str = "k",
        turn: bool = False,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, D)
        self.parts = nn.ModuleDict({name: nn.Linear(D, D) for name in "qkvo"})
        self.split, self.put, self.scale, self.keys, self.turn = split, put, scale, keys, turn

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        q, k, v = (self.split(self.parts[name](x)) for name in ("q", self.keys, "v"))
        if self.turn:
            angle = torch.arange(ids.size(1))[:, None] * torch.tensor([1.0, 0.1, 0.01]).to(x)
            q, k = (rotate(t, angle) for t in (q, k))
        weights = (q @ k.mT * self.scale).softmax(-1)
        return x + self.parts["o"](self.put(weights @ v))


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def probe_of(model: nn.Module) -> Probe:
    ids = torch.randint(0, 20, (5, 13), generator=torch.Generator().manual_seed(1))
    return Probe(adapt(Subject(model, (ids,), kind="encoder")))


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
    marks = numbered(start.shape, -1)
    (seen,) = marked(record, {start: marks}, [end], 1e-16)
    assert torch.equal(seen, cut(marks.contiguous()))


def test_what_comes_from_nowhere_or_from_several_is_told() -> None:
    x = torch.randn(2, 4, 3, dtype=torch.float64)

    def add_neighbour(t: Tensor) -> Tensor:
        return torch.cat([t[:, 1:] + t[:, :-1], torch.ones(2, 1, 3, dtype=t.dtype)], 1)

    record, start, end = record_of(add_neighbour, x)
    (seen,) = marked(record, {start: numbered(start.shape, -1)}, [end], 1e-16)
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


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("scale", [DH**-0.5, 1.0, 0.3])
def test_the_factor_is_measured_through_rotations(scale: float, turn: bool) -> None:
    probe = probe_of(Model(scale=scale, turn=turn))
    (each,) = heads(probe)
    found = gauge(probe, each)
    assert found is not None and math.isclose(found.factor, scale, rel_tol=1e-3)


def test_smaller_weights_make_up_for_a_missing_factor() -> None:
    plain, small = Model(scale=1.0), Model(scale=1.0)
    with torch.no_grad():
        small.parts["q"].weight *= DH**-0.5
    reach = [spread(probe, heads(probe)[0]) for probe in (probe_of(plain), probe_of(small))]
    assert reach[0] is not None and reach[1] is not None
    assert reach[0] > DH**-0.25 > reach[1]


@pytest.mark.parametrize("turn", [False, True])
def test_one_projection_is_told_from_two(turn: bool) -> None:
    shared, usual = (probe_of(Model(keys=name, turn=turn)) for name in ("v", "k"))
    assert is_one(shared, heads(shared)[0], "k", "v")
    assert not is_one(shared, heads(shared)[0], "q", "k")
    assert not is_one(usual, heads(usual)[0], "k", "v")
