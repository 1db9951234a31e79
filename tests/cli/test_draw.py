"""headwise draw: a run's curves and positions as pictures."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import fail, succeed


@pytest.mark.parametrize("what", ["curves", "positions", "similarity"])
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_it_draws_and_says_what_to_see(
    what: str, ending: str, run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"picture.{ending}"
    output = succeed(capsys, "draw", run, "--what", what, "--output", str(path))
    caption, last = output.splitlines()
    assert last == f"{what}: {path}" and len(caption) > 40
    assert path.read_bytes().startswith(b"\x89PNG" if ending == "png" else b"<?xml")


def test_the_default_is_the_loss(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Training loss goes from" in succeed(capsys, "draw", str(Path(run).resolve()))
    assert (tmp_path / "curves.png").exists()


def test_mistakes_are_one_line(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "must end in .png or .svg: got a.gif" in fail(capsys, "draw", run, "--output", "a.gif")
    assert "--length has no effect on curves" in fail(capsys, "draw", run, "--length", "5")
    lengths = fail(capsys, "draw", run, "--what", "positions", "--length", "1")
    assert "--length must be from 2 to 4096: got 1" in lengths
    assert "metrics.jsonl" in fail(capsys, "draw", str(tmp_path))
    (tmp_path / "a.png").mkdir()
    assert "it is a directory" in fail(capsys, "draw", run, "--output", f"{tmp_path}/a.png")
