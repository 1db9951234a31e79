"""The picture of one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.commands import SOURCES, fail, succeed


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_attention_draws_a_picture(
    kind: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "maps.png"
    output = succeed(capsys, "attention", run, "--source", SOURCES[0], "--output", str(path), "--kind", kind)
    assert output.endswith(f"{kind} attention: {path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_attention_of_nothing_is_one_line(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "between 1 and" in fail(capsys, "attention", run, "--source", "")
    assert "got 601" in fail(capsys, "attention", run, "--source", "1" * 600)


def test_attention_tells_the_translation_that_translate_gives(
    run: str, tmp_path: Path, typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    output = succeed(capsys, "attention", run, "--source", SOURCES[0], "--output", str(tmp_path / "a.png"))
    typed(SOURCES[0])
    assert output.splitlines()[0] == succeed(capsys, "translate", run, "--beam", "1").rstrip("\n")


def test_a_picture_is_a_png(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    error = fail(capsys, "attention", run, "--source", SOURCES[0], "--output", "maps.txt")
    assert "--output must end in .png: got maps.txt; maps.png would do" in error
