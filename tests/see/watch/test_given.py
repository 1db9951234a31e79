"""What a watch is given is checked when it is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from headwise.errors import ConfigError, StorageError
from headwise.see.watch.given import check_place, is_sharded, number_of


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), torch.tensor(2), torch.tensor([2.0])])
def test_numbers_of_all_kinds(value: object) -> None:
    assert number_of("a", value)() == 2.0


@pytest.mark.parametrize("value", [None, "2", torch.ones(3), np.ones(2), [1.0]])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(ConfigError, match=r"watch\.log takes numbers: got .* for a"):
        number_of("a", value)


def test_a_report_has_a_place(tmp_path: Path) -> None:
    check_place(tmp_path / "new" / "r.html")
    assert not list((tmp_path / "new").iterdir())
    for place in (tmp_path, Path("/dev/full"), Path("/proc/r.html")):
        with pytest.raises(StorageError):
            check_place(place)


def test_a_model_of_one_process_is_whole() -> None:
    assert not is_sharded(nn.Linear(2, 2))
