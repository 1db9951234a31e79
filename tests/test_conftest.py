"""The fixtures that other tests lean on do what they say."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


@pytest.mark.parametrize("time", [1, 2])
def test_each_test_starts_from_the_same_seeds(time: int, seeded: int) -> None:
    drawn = draw()
    random.seed(seeded)
    np.random.seed(seeded)
    torch.manual_seed(seeded)
    assert drawn == draw()
    assert torch.get_num_threads() == 1


def test_shared_skips_with_the_missing_path(shared: Callable[[str], Path]) -> None:
    with pytest.raises(pytest.skip.Exception, match="shared/no/such/thing"):
        shared("no/such/thing")


def test_golden_text_is_rewritten_only_by_accept(golden: Any, tmp_path: Path) -> None:
    compare, accept = (type(golden)(tmp_path, accept=accept) for accept in (False, True))
    with pytest.raises(AssertionError, match="run pytest --accept"):
        compare("a/report", "one\n")
    accept("a/report", "one\n")
    compare("a/report", "one\n")
    with pytest.raises(AssertionError, match=r"differs from .*report\.txt"):
        compare("a/report", "two\n")
    assert (tmp_path / "a/report.txt").read_text() == "one\n"
