"""What can be no run is told in one line, without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.checkpoint.folder import check_run_folder
from headwise.errors import RunError


def test_a_directory_with_a_config_may_be_one(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    check_run_folder(tmp_path)


def test_what_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, said in (
        ("nowhere", "no run .*nowhere; headwise train RECIPE makes one"),
        ("a\0b", "no run "),
        ("file", "file is a file: expected a run"),
        ("file/below", "no run "),
        (".", r"is not a run: it has no config\.yaml"),
        ("x" * 300, "cannot read .*: File name too long; name a run"),
    ):
        with pytest.raises(RunError, match=said):
            check_run_folder(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter anywhere")
def test_a_directory_that_may_not_be_entered_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o000)
    try:
        with pytest.raises(RunError, match="Permission denied"):
            check_run_folder(tmp_path)
    finally:
        tmp_path.chmod(0o700)


def test_nothing_heavy_is_loaded_to_tell() -> None:
    program = "import sys, headwise.checkpoint.folder; print(sorted({'torch', 'yaml'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
