"""A failing operation is told with named axes; other exceptions are not told as shapes."""

from __future__ import annotations

import pytest
from torch import Tensor

from doctor.shape_net import BATCH, HEADS, TIME, WIDTH, Net, not_transposed, told
from headwise.doctor.shapes_told import Names


def test_the_operands_are_called_as_the_line_calls_them_with_named_axes():
    failure, _ = told(not_transposed)
    assert failure is not None
    assert failure.code == "q @ k"
    axes = f"[batch {BATCH}, heads {HEADS}, time {TIME}, head width {WIDTH // HEADS}]"
    assert [str(operand) for operand in failure.operands] == [f"q is {axes}", f"k is {axes}"]


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
