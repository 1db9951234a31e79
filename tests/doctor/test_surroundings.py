"""What the stranger's code finds about it, and what it leaves behind: nothing."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from headwise.doctor.surroundings import package_of, seed_all, surroundings


def test_a_script_finds_its_folder_first_and_itself_as_argument(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    around = surroundings(file)
    assert around.path == [str(tmp_path), *sys.path] and around.argv == [str(file)]
    assert surroundings("some.module").argv == ["some.module"]
    assert surroundings().path == sys.path


def test_what_the_code_changes_inside_is_kept_for_it_and_undone_outside() -> None:
    around = surroundings()
    search, arguments = list(sys.path), list(sys.argv)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), around.entered():
            sys.path.append("somewhere")
            sys.argv.append("x")
            torch.set_default_dtype(torch.float64)
            torch.set_default_device("meta")
            raise ZeroDivisionError
        assert (sys.path, sys.argv) == (search, arguments)
        assert torch.zeros(1).dtype == torch.float32 and torch.zeros(1).device.type == "cpu"
        assert around.dtype == torch.float64 and around.device.type == "meta"
    with around.entered():
        assert sys.path[-1] == "somewhere" and torch.zeros(1).is_meta


def test_a_file_belongs_to_its_package_only_where_it_imports_from_it(tmp_path: Path) -> None:
    folder = tmp_path / "outer" / "inner"
    folder.mkdir(parents=True)
    (tmp_path / "outer" / "__init__.py").touch()
    (folder / "__init__.py").touch()
    alone, member = folder / "alone.py", folder / "member.py"
    alone.write_text("import os\n")
    member.write_text("def f():\n    from ..x import y\n")
    assert package_of(alone) == ["alone"]
    assert package_of(member) == ["outer", "inner", "member"]
    assert surroundings(member).path[0] == str(tmp_path)
    member.write_text("from . import (\n")
    assert package_of(member) == ["member"]


def test_seeds_are_the_same_for_all() -> None:
    def draw() -> tuple[float, float, float]:
        seed_all()
        return random.random(), float(np.random.rand()), torch.rand(1).item()

    assert draw() == draw()
