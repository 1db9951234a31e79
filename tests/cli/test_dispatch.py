"""Which command runs, and what code its end gives: only a bug of ours shows a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import one_line
from headwise.cli import dispatch, main
from headwise.errors import Stopped

DATES = str(Path(__file__).resolve().parents[2] / "recipes" / "dates.yaml")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == main(["-h"]) == 0
    output = capsys.readouterr().out
    assert "translate, continue a text, name classes" in output
    for name in dispatch.COMMANDS:
        assert f"\n  {name} " in output
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: headwise {name} ")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("headwise ")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "headwise: stopped\n"),
        (
            Stopped("stopped after step 7;\nthe same command goes on"),
            130,
            "headwise: stopped after step 7; the same",
        ),
        (OSError(28, "No space left on device"), 2, "headwise: No space left on device\n"),
        (MemoryError(), 2, "headwise: not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 4 EB"),
            2,
            "headwise: not enough memory",
        ),
        (BrokenPipeError(), 141, ""),
    ],
)
def test_what_stops_a_command_gives_its_code(
    error: BaseException,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(dispatch, "_command", lambda _: fail)
    monkeypatch.setattr(dispatch, "_forget_stdout", lambda: None)
    assert main(["train"]) == code
    assert capsys.readouterr().err.startswith(said)


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> int:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(dispatch, "_command", lambda _: fail)
    with pytest.raises(RuntimeError, match="shapes"):
        main(["train"])


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "headwise", "train", DATES, "--print_config"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_the_output_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "headwise", "train", DATES, "--print_config"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert "No space left" in one_line(done.stderr)


def test_each_command_is_found_and_nothing_else() -> None:
    for name in dispatch.COMMANDS:
        command = dispatch._command(name)
        assert command is not None and command.__name__ == name
    assert dispatch._command("fly") is None


def test_what_is_said_is_one_line_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch._fail("a\nb\tc\x1b[31md", 2) == 2
    assert one_line(capsys.readouterr().err) == "headwise: a b c [31md\n"


def test_an_argument_that_is_no_text_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "\udcff"]) == 2
    assert "must be UTF-8" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_show_no_traceback(closed: str) -> None:
    command = f"{sys.executable} -m headwise nothing {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
