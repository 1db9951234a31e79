"""A failing operation is told with named axes and its likely cause; other exceptions are not told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.shape_causes import cause_of
from headwise.doctor.shapes_told import Names, failure_of
from headwise.doctor.subject import Subject

BATCH, TIME, WIDTH, HEADS, VOCAB = 5, 13, 24, 3, 40


class Net(nn.Module):
    def __init__(self, middle) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.places = nn.Embedding(9, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS)
        self.middle = middle

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.middle(self, self.words(ids)))


def told(middle, ids: Tensor | None = None):
    ids = torch.arange(BATCH * TIME).view(BATCH, TIME) % VOCAB if ids is None else ids
    probe = Probe(adapt(Subject(Net(middle), (ids,))))
    assert probe.failure is not None
    failure = failure_of(probe)
    return failure, None if failure is None else cause_of(probe, failure)


def heads(net: Net, h: Tensor) -> Tensor:
    return h.view(BATCH, TIME, HEADS, WIDTH // HEADS).transpose(1, 2)


def not_transposed(net: Net, h: Tensor) -> Tensor:
    q = k = heads(net, h)
    return q @ k


def one_head_too_many(net: Net, h: Tensor) -> Tensor:
    return h.view(BATCH, TIME, 5, WIDTH // 5)


def bare_padding_mask(net: Net, h: Tensor) -> Tensor:
    q = heads(net, h)
    return (q @ q.mT).masked_fill(torch.zeros(BATCH, TIME).bool(), 0.0)


def mask_of_another_length(net: Net, h: Tensor) -> Tensor:
    q = heads(net, h)
    return (q @ q.mT).masked_fill(torch.zeros(8, 8).bool(), 0.0)


def long(net: Net, h: Tensor) -> Tensor:
    return h + net.places(torch.arange(h.size(1)))


def wide(net: Net, h: Tensor) -> Tensor:
    return net.out(torch.cat([h, h], dim=-1))


def time_first(net: Net, h: Tensor) -> Tensor:
    return net.attention(h, h, h, key_padding_mask=torch.zeros(BATCH, TIME).bool())[0]


def not_contiguous(net: Net, h: Tensor) -> Tensor:
    return h.transpose(1, 2).view(BATCH, -1)


def mixed_types(net: Net, h: Tensor) -> Tensor:
    return F.linear(h, torch.ones(WIDTH, WIDTH, dtype=torch.float16))


def one_minus_bool(net: Net, h: Tensor) -> Tensor:
    return h * (1 - (h > 0))


def unpacked(net: Net, h: Tensor) -> Tensor:
    rows, width = h.shape
    return h.view(rows, width)


@pytest.mark.parametrize(
    ("middle", "why"),
    [
        (not_transposed, "not transposed"),
        (one_head_too_many, "not divisible by 5 heads"),
        (bare_padding_mask, "lines up with the last axes"),
        (mask_of_another_length, "made for 8 positions"),
        (long, "longer than the table of positions"),
        (wide, "reads a last axis of 24 and gets 48"),
        (time_first, "takes time first"),
        (not_contiguous, "no longer lie in order"),
        (mixed_types, "different types"),
        (one_minus_bool, "boolean mask is used in arithmetic"),
        (unpacked, "another number of axes"),
    ],
)
def test_the_cause_is_named_at_the_users_line(middle, why):
    failure, cause = told(middle)
    assert failure is not None and cause is not None and failure.place is not None
    assert failure.place.function == middle.__name__
    assert why in cause.why


def test_the_operands_are_called_as_the_line_calls_them_with_named_axes():
    failure, _ = told(not_transposed)
    assert failure is not None
    assert failure.code == "q @ k"
    axes = f"[batch {BATCH}, heads {HEADS}, time {TIME}, head width {WIDTH // HEADS}]"
    assert [str(operand) for operand in failure.operands] == [f"q is {axes}", f"k is {axes}"]


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


def missing_argument(net: Net, h: Tensor) -> Tensor:
    return net.out()


def missing_attribute(net: Net, h: Tensor) -> Tensor:
    return net.nothing(h)


def wrong_unpacking(net: Net, h: Tensor) -> Tensor:
    h, _ = (h,)
    return h


def unknown_key(net: Net, h: Tensor) -> Tensor:
    return {}["size"]


@pytest.mark.parametrize("middle", [missing_argument, missing_attribute, wrong_unpacking, unknown_key])
def test_other_exceptions_are_not_told_as_shapes(middle):
    assert told(middle)[0] is None


def test_axes_are_named_by_size_and_place():
    names = Names(
        batch=5, lengths={13: "time"}, widths={24: "d_model", 40: "vocabulary"}, heads={3}, head_widths={8}
    )
    assert names.axes((5, 13, 24)) == ("batch", "time", "d_model")
    assert names.axes((5, 3, 13, 8)) == ("batch", "heads", "time", "head width")
    assert names.axes((15, 13, 13)) == ("batch x heads", "time", "time")
    assert names.axes((5, 13, 72)) == ("batch", "time", "3 x d_model")
    assert names.axes((5, 13, 40)) == ("batch", "time", "vocabulary")
    assert names.axes((17,)) == ("",)
