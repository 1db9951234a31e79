"""The language of name maps: every entry is its own way back, and every layout covers its models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import headwise
from checkpoint.foreign.agreement import CASES
from headwise.checkpoint.foreign import layout as language
from headwise.checkpoint.foreign.layout import Entry, joined, layouts, reshaped, same, skipping, transposed

OWN = torch.arange(24.0).view(6, 4)
ENTRIES: dict[str, tuple[Entry, list[list[int]]]] = {
    "same": (same("o", "t"), [[6, 4]]),
    "transposed": (transposed("o", "t"), [[4, 6]]),
    "joined": (joined("o", ["q", "k", "v"], [3, 1, 2]), [[3, 4], [1, 4], [2, 4]]),
    "skipping": (skipping(2, "o", "t"), [[8, 4]]),
    "reshaped": (reshaped("o", "t", [6, 4], [1, 6, 2, 2]), [[1, 6, 2, 2]]),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_is_its_own_way_back(name: str) -> None:
    entry, shapes = ENTRIES[name]
    theirs = entry.to_theirs(OWN)
    assert [list(tensor.shape) for tensor in theirs] == shapes
    assert torch.equal(entry.to_ours(theirs), OWN)
    told = entry.to_theirs(OWN.to("meta"))  # shapes alone, for what a file should hold
    assert [list(tensor.shape) for tensor in told] == shapes


def test_which_numbers_go_where() -> None:
    def theirs(name: str) -> list[Tensor]:
        return list(ENTRIES[name][0].to_theirs(OWN))

    assert theirs("transposed")[0][1, 2] == OWN[2, 1]
    assert torch.equal(theirs("joined")[1], OWN[3:4])
    assert torch.equal(theirs("skipping")[0][2:], OWN) and not theirs("skipping")[0][:2].any()


def test_every_file_with_layouts_is_found_without_a_list() -> None:
    folder = Path(language.__file__).parent
    files = [path for path in folder.glob("*.py") if "\nLAYOUTS = " in path.read_text(encoding="utf-8")]
    assert len(files) == 6
    assert set(layouts()) == {case.layout for case in CASES}
    assert list(layouts()) == sorted(layouts())


def test_every_class_that_can_be_loaded_is_tried() -> None:
    tried = {case.architecture for case in CASES}
    assert {head for layout in layouts().values() for head in layout.heads} == tried


def test_public_names() -> None:
    assert headwise.load.__module__ == "headwise.checkpoint.foreign.load"
    assert headwise.save.__module__ == "headwise.checkpoint.foreign.save"
