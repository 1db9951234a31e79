"""Ids beyond a table, tables and masks of another length, masks without an axis: told by their sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from doctor.shape_net import BATCH, TIME, VOCAB, WIDTH, Net, heads, told


def bare_padding_mask(net: Net, h: Tensor) -> Tensor:
    q = heads(net, h)
    return (q @ q.mT).masked_fill(torch.zeros(BATCH, TIME).bool(), 0.0)


def mask_of_another_length(net: Net, h: Tensor) -> Tensor:
    q = heads(net, h)
    return (q @ q.mT).masked_fill(torch.zeros(8, 8).bool(), 0.0)


def long(net: Net, h: Tensor) -> Tensor:
    return h + net.places(torch.arange(h.size(1)))


def mask_without_heads(net: Net, h: Tensor) -> Tensor:
    q = heads(net, h)
    return (q @ q.mT).masked_fill(torch.zeros(BATCH, TIME, TIME).bool(), 0.0)


def table_too_short(net: Net, h: Tensor) -> Tensor:
    return h + torch.zeros(TIME - 2, WIDTH)


def table_of_another_width(net: Net, h: Tensor) -> Tensor:
    return h + torch.zeros(TIME, WIDTH + 1)


@pytest.mark.parametrize(
    ("middle", "why"),
    [
        (bare_padding_mask, "lines up with the last axes"),
        (mask_of_another_length, "made for 8 positions"),
        (mask_without_heads, "no axis for the heads"),
        (long, "longer than the table of positions"),
        (table_too_short, f"has {TIME - 2} rows, and the sequence {TIME} positions"),
        (table_of_another_width, f"the widths differ: {WIDTH} and {WIDTH + 1}"),
    ],
)
def test_the_cause_is_named_at_the_users_line(middle, why):
    failure, cause = told(middle)
    assert failure is not None and cause is not None and failure.place is not None
    assert failure.place.function == middle.__name__
    assert why in cause.why


def test_an_id_beyond_the_vocabulary_is_told_with_its_place():
    ids = torch.zeros(BATCH, TIME, dtype=torch.long)
    ids[2, 7] = VOCAB + 3
    _, cause = told(lambda net, h: h, ids)
    assert cause is not None
    assert f"words.weight has {VOCAB} rows" in cause.why
    assert f"{VOCAB + 3} at row 2, position 7" in cause.why


def test_labels_given_as_ids_are_told_as_such():
    ids = torch.zeros(BATCH, TIME, dtype=torch.long)
    ids[1, 4] = -100
    _, cause = told(lambda net, h: h, ids)
    assert cause is not None and "labels" in cause.why
