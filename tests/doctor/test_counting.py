"""Where counting starts is read from the source: a name leads to its assignment, a parameter to the call."""

from __future__ import annotations

import linecache
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headwise.doctor.counting import start_of
from headwise.doctor.trace import recording


def from_zero(past: int, length: int) -> Tensor:
    return torch.arange(length)  # ZERO


def from_assigned(past: int, length: int) -> Tensor:
    start = past * 0  # ASSIGNED
    return torch.arange(start, start + length)


def counted(start: int, length: int) -> Tensor:
    return torch.arange(start, start + length)


def from_call(past: int, length: int) -> Tensor:
    return counted(0, length)  # CALL


def from_far(past: int, length: int) -> Tensor:
    seen = past  # FAR
    return counted(seen, length)


@pytest.mark.parametrize(
    ("count", "mark"),
    [(from_zero, "ZERO"), (from_assigned, "ASSIGNED"), (from_call, "CALL"), (from_far, "FAR")],
)
def test_the_line_that_decides_the_start(count: Callable[[int, int], Tensor], mark: str) -> None:
    with recording(None) as record:
        count(3, 4)
    op = next(op for op in record.ops if op.name == "arange")
    lines = linecache.getlines(__file__)
    expected = next(n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}"))
    place = start_of(op)
    assert place is not None and place.line == expected


def test_nothing_is_read_of_no_operation() -> None:
    assert start_of(None) is None
