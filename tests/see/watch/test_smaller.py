"""Rows are cut along the axis that is measured to be theirs; nothing given is written to."""

from __future__ import annotations

from collections import namedtuple

import torch

from headwise.see.watch.smaller import Cut, agrees, cut_along, mapped, tensors

Pair = namedtuple("Pair", "ids mask")


def test_rows_are_far_apart_and_the_structure_stays() -> None:
    ids = torch.arange(5 * 7).view(5, 7)
    given = ((Pair(ids, torch.ones(5, 1, 7, 7)), None), {"scale": 2.0, "more": [ids.float()]})
    cut = cut_along(given, 0, is_short=False)
    (pair, nothing), named = cut(given)
    assert isinstance(pair, Pair) and nothing is None and named["scale"] == 2.0
    assert torch.equal(pair.ids, ids[[0, 4]])
    assert pair.mask.shape == (2, 1, 7, 7)
    assert torch.equal(cut(ids, is_again=True), ids[[0, 4, 0]])
    pair.ids.zero_()
    named["more"][0].zero_()
    assert int(ids.sum()) == 34 * 35 // 2


def test_long_rows_are_cut_wherever_their_length_stands() -> None:
    given = torch.zeros(3, 300), torch.zeros(300, 300), torch.zeros(300, 8)
    ids, mask, table = cut_along(given, 0, is_short=True)(given)
    assert (ids.shape, mask.shape, table.shape) == ((2, 256), (256, 256), (256, 8))


def test_only_the_axis_of_the_rows_agrees() -> None:
    x = torch.randn(6, 5, 3)

    def running_mean(of: torch.Tensor, time: int) -> torch.Tensor:
        return of.cumsum(time)

    for time, rows in ((1, 0), (0, 1)):
        for axis in (0, 1):
            cut = cut_along(x, axis, is_short=False)
            told = agrees(cut, running_mean(x, time), running_mean(cut(x), time))
            assert told == (axis == rows), (time, axis)


def test_a_loss_alone_tells_nothing() -> None:
    assert not agrees(Cut(0, 4), torch.tensor(1.0), torch.tensor(1.0))


def test_other_objects_are_copied_and_functions_are_not() -> None:
    class Cache:
        def __init__(self) -> None:
            self.held = [1]

    cache = Cache()
    made, function = mapped((cache, len), lambda t: t)
    made.held.append(2)
    assert cache.held == [1] and function is len
    assert tensors({"a": [torch.zeros(1), (torch.ones(2),)]})[1].shape == (2,)
