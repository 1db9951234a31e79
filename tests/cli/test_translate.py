"""Lines in, translations out, in their order; each as soon as a person wants it."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.commands import SOURCES, fail, succeed
from headwise.cli import main


def test_translate_keeps_lines_and_their_order(
    run: str, typed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n".join(SOURCES)
    typed(text)
    output = succeed(capsys, "translate", run, "--beam", "2")
    lines = output.split("\n")
    assert len(lines) == len(SOURCES) + 1 and lines[-1] == ""
    assert [bool(line) for line in lines[:-1]] == [bool(source.strip()) for source in SOURCES]
    one_by_one = ""
    for source in SOURCES:
        typed(source + "\n")
        one_by_one += succeed(capsys, "translate", run, "-", "--beam=2")
    assert one_by_one == output
    for name, content in (
        ("in.txt", text.encode() + b"\n"),
        ("in.gz", gzip.compress(text.encode(), mtime=0)),
    ):
        (tmp_path / name).write_bytes(content)
        assert succeed(capsys, "translate", run, str(tmp_path / name), "--beam", "2") == output
    assert (
        succeed(
            capsys, "translate", run, str(tmp_path / "in.txt"), "--output", str(tmp_path / "o"), "--beam", "2"
        )
        == ""
    )
    assert (tmp_path / "o").read_text(encoding="utf-8") == output


def test_translate_nothing(run: str, typed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    typed("")
    assert succeed(capsys, "translate", run) == ""


def test_n_best_numbers_sentences_and_falls_in_score(
    run: str, typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("\n".join(SOURCES))
    best = succeed(capsys, "translate", run, "--beam", "3").split("\n")[:-1]
    typed("\n".join(SOURCES))
    rows = [
        line.split(" ||| ")
        for line in succeed(capsys, "translate", run, "--beam", "3", "--n_best", "3").splitlines()
    ]
    assert [int(row[0]) for row in rows] == [0, 0, 0, 1, 2, 2, 2, 3, 4, 4, 4]
    scores = [float(row[2]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 3
    firsts = [next(row[1] for row in rows if int(row[0]) == number) for number in range(len(SOURCES))]
    assert firsts == best


def test_bad_input_to_translate_is_one_line(run: str, typed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    typed(b"ok\n\xff\n")
    assert "standard input must be UTF-8: line 2, byte 1 is 0xff" in fail(capsys, "translate", run)
    assert "cannot read no.txt" in fail(capsys, "translate", run, "no.txt")
    assert "--n_best must not pass --beam: got 3 and 2" in fail(
        capsys, "translate", run, "--beam", "2", "--n_best", "3"
    )
    assert "max_length must lie between 1" in fail(capsys, "translate", run, "--max_length", "100000")


def test_a_damaged_run_is_one_line(run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.yaml", "tokenizer.json", "model.safetensors"):
        broken = tmp_path / name
        broken.mkdir()
        for path in Path(run).iterdir():
            if path.is_file():
                (broken / path.name).write_bytes(path.read_bytes()[: 10 if path.name == name else None])
        assert name in fail(capsys, "translate", str(broken))


def test_help_of_a_command(golden: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["translate", "--help"]) == 0
    golden("help_translate", capsys.readouterr().out)


def test_the_score_of_a_greedy_translation_is_its_own(
    run: str, typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    typed("<zh> $5.20\n<de> 12%\n")
    plain = succeed(capsys, "translate", run, "--beam", "1").splitlines()

    def scored(*options: str) -> list[list[str]]:
        typed("<zh> $5.20\n<de> 12%\n")
        arguments = "translate", run, "--beam", "1", "--n_best", "1", *options
        return [line.split(" ||| ") for line in succeed(capsys, *arguments).splitlines()]

    found = scored()
    assert [row[1] for row in found] == plain
    assert all(float(row[2]) < -0.01 for row in found)
    assert float(scored("--length_penalty", "0")[0][2]) < float(found[0][2])


class Terminal(io.RawIOBase):
    """Somebody types a line, and notes what has been answered before typing the next one."""

    def __init__(self, lines: list[bytes], answered: Callable[[], str]) -> None:
        self.lines, self.answered, self.seen = lines, answered, list[str]()

    def readable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.seen.append(self.answered())
        line = self.lines.pop(0) if self.lines else b""
        buffer[: len(line)] = line
        return len(line)


@pytest.mark.parametrize("options", [[], ["--n_best", "1"]])
def test_a_person_is_answered_line_by_line(
    options: list[str],
    run: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal([b"<de> 12%\n", b"\n", b"<zh> 5\n"], lambda: capfd.readouterr().out)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(terminal)))
    assert main(["translate", run, *options, "--max_length", "4"]) == 0
    # nothing before the first line; then, before each further one and before the end, one answer
    assert [seen.count("\n") for seen in terminal.seen[:4]] == [0, 1, 1, 1]


def test_who_does_not_type_is_translated_in_windows(
    run: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = Terminal([b"<de> 12%\n", b"<zh> 5\n"], lambda: capfd.readouterr().out)
    monkeypatch.setattr(piped, "isatty", lambda: False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(piped)))
    assert main(["translate", run, "--max_length", "4"]) == 0
    assert "".join(piped.seen) == "" and capfd.readouterr().out.count("\n") == 2
