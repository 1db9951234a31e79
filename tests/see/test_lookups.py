"""Which ids were looked up, and where in the input they stood."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.subject import Subject
from headwise.see.lookups import Lookup, Lookups
from headwise.see.one_row import pass_over

IDS = torch.tensor([[5, 2, 8, 2]])


class Looks(nn.Module):
    def __init__(self, move: Callable[[Tensor], Tensor], is_indexed: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(12, 8)
        self.move, self.is_indexed = move, is_indexed

    def forward(self, ids: Tensor) -> Tensor:
        moved = self.move(ids)
        x = self.table.weight[moved] if self.is_indexed else self.table(moved)
        return (x @ x.mT).softmax(-1) @ x


def found(model: nn.Module, count: int = 4) -> Lookup | None:
    ran = pass_over(adapt(Subject(model, IDS)), 0)
    return Lookups(ran.record, ran.batch, [0]).under(ran.maps[0].site.q_value, count)


@pytest.mark.parametrize("is_indexed", [True, False])
@pytest.mark.parametrize(
    ("move", "ids", "origin"),
    [
        (lambda ids: ids, (5, 2, 8, 2), (0, 1, 2, 3)),
        (lambda ids: ids.flip(1), (2, 8, 2, 5), (3, 2, 1, 0)),
        (lambda ids: torch.cat((torch.full((1, 1), 9), ids[:, :-1]), 1), (9, 5, 2, 8), (-1, 0, 1, 2)),
        (lambda ids: ids.int().roll(1, 1), (2, 5, 2, 8), (3, 0, 1, 2)),
    ],
)
def test_equal_ids_are_told_apart_by_where_they_stood(
    move: Callable[[Tensor], Tensor], ids: tuple[int, ...], origin: tuple[int, ...], is_indexed: bool
) -> None:
    lookup = found(Looks(move, is_indexed))
    assert lookup is not None and (lookup.leaf, lookup.length) == (0, 4)
    assert (lookup.ids, lookup.origin) == (ids, origin)
    assert lookup.is_as_given == (ids == (5, 2, 8, 2))


def test_what_is_counted_from_ids_is_no_look_at_them() -> None:
    for move in (
        lambda ids: (ids != 8).long().cumsum(1),
        lambda ids: ids + 1,
    ):
        assert found(Looks(move)) is None
    assert found(Looks(lambda ids: ids), 5) is None, "of another number"
