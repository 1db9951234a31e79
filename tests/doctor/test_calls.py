"""Who was handed which tensor: every call of a user's function, and the operations inside it."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.calls import calls
from headwise.doctor.trace import recording


def inner(x: Tensor, *, mask: Tensor | None = None, times: int = 1) -> Tensor:
    return x * times  # the mask is let fall


def outer(x: Tensor, mask: Tensor) -> Tensor:
    y = x + 1
    return nn.functional.relu(inner(y, mask=mask, times=2))


def test_calls_name_the_function_its_tensors_and_its_operations() -> None:
    x, mask = torch.randn(2, 3), torch.ones(2, 3)
    with torch.no_grad(), recording(None, [x, mask]) as record, calls(record) as found:
        x.add(0), mask.add(0)  # both are known from here on
        outer(x, mask)
    by_name = {call.place.function: call for call in found if call.place.file == __file__}
    assert set(by_name) == {"outer", "inner"}
    first, second = by_name["outer"], by_name["inner"]
    assert first.place.line == outer.__code__.co_firstlineno
    assert {name: value.name for name, value in first.given.items()} == {"x": "input 0", "mask": "input 1"}
    assert set(second.given) == {"x", "mask"} and second.given["mask"] is first.given["mask"]
    assert second.depth == first.depth + 1
    assert [op.name for op in record.ops[second.first : second.last]] == ["mul"]
    assert [op.name for op in record.ops[first.first : first.last]] == ["add", "mul", "relu"]
    assert not first.library


@pytest.mark.parametrize("fails", [False, True])
def test_the_watch_ends_with_the_block(fails: bool) -> None:
    was = sys.getprofile()
    try:
        with recording(None) as record, calls(record):
            assert sys.getprofile() is not was
            if fails:
                raise ValueError
    except ValueError:
        pass
    assert sys.getprofile() is was
