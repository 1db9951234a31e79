"""The likely mistake behind a failure is named by the sizes that met."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from doctor.shape_net import BATCH, TIME, WIDTH, Net, not_transposed, told


def one_head_too_many(net: Net, h: Tensor) -> Tensor:
    return h.view(BATCH, TIME, 5, WIDTH // 5)


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
