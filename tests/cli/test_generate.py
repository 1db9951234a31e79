"""A text continued: streamed for one, a line each for many, written whole or not at all."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cli.commands import fail, succeed
from headwise.cli import main
from headwise.decode import writer as writer_module

RunOf = Callable[[str], str]
GREEDY = ("--temperature", "0", "--max_new_tokens", "30")


@pytest.fixture
def run(run_of: RunOf) -> str:
    return run_of("language")


def test_the_prompt_and_what_follows_are_told(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = succeed(capsys, "generate", run, "--prompt", "the cat", *GREEDY)
    assert output.startswith("the cat") and output.endswith("\n") and len(output) == 7 + 30 + 1
    assert succeed(capsys, "generate", run, "--prompt", "the cat", *GREEDY) == output
    assert len(succeed(capsys, "generate", run, "--max_new_tokens", "5")) == 6  # without a prompt


def test_seeds_and_options_reach_the_sampling(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*options: str) -> str:
        return succeed(capsys, "generate", run, "--prompt", "the", "--max_new_tokens", "40", *options)

    assert said("--seed", "3") == said("--seed", "3") != said("--seed", "4")
    greedy = said("--temperature", "0")
    assert said("--top_k", "1") == said("--top_p", "0.000001") == said("--min_p", "1") == greedy
    assert said("--temperature", "0", "--repetition_penalty", "100") != greedy


def test_many_prompts_are_one_batch_and_a_line_each(
    run: str, typed: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = ["the cat", "", "a mat, the dog lay on the rug; both", "t"]
    expected: list[str] = []
    for prompt in prompts:
        whole = succeed(capsys, "generate", run, "--prompt", prompt, *GREEDY)
        expected.append(whole[len(prompt) : -1].replace("\n", "\\n"))
    batches: list[int] = []
    generate = writer_module.generate

    def counted(model: Any, rows: Any, *given: Any, **named: Any) -> Any:
        batches.append(len(rows))
        return generate(model, rows, *given, **named)

    monkeypatch.setattr(writer_module, "generate", counted)
    typed("\n".join(prompts) + "\n")
    output = succeed(capsys, "generate", run, "--prompts", "-", *GREEDY)
    assert output.split("\n") == [*expected, ""] and batches == [4]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts))
    arguments = ("--prompts", str(tmp_path / "prompts.txt"), "--output", str(tmp_path / "out.txt"))
    assert succeed(capsys, "generate", run, *arguments, *GREEDY) == ""
    assert (tmp_path / "out.txt").read_text() == output
    typed("")
    assert succeed(capsys, "generate", run, "--prompts", "-") == ""


def test_a_stop_ends_the_answer_and_is_not_written(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = succeed(capsys, "generate", run, "--prompt", "the", *GREEDY)[3:-1]
    stop = whole[5:8]
    output = succeed(capsys, "generate", run, "--prompt", "the", "--stop", stop, *GREEDY)
    assert output == f"the{whole[: whole.index(stop)]}\n"


def test_a_stop_may_be_a_line_end(
    run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[object] = []

    def note(*_: object, stop: object, **__: object) -> list[str]:
        stops.append(stop)
        return [""]

    monkeypatch.setattr(writer_module.Writer, "write", note)
    succeed(capsys, "generate", run, "--stop", "\\n\\n")
    succeed(capsys, "generate", run)
    assert stops == [["\n\n"], []]


def test_a_single_answer_appears_piece_by_piece(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    class Watched(io.BytesIO):
        def flush(self) -> None:
            if self.getvalue() and (not seen or self.getvalue() != seen[-1]):
                seen.append(self.getvalue())

    out = io.TextIOWrapper(Watched(), "ascii")  # bytes are UTF-8 whatever the terminal says
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["generate", run, "--prompt", "the s\u00fcd", *GREEDY]) == 0
    assert len(seen) > 20
    assert seen[0] == "the s\u00fcd".encode() and seen[-1].endswith(b"\n")
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
    monkeypatch.undo()


def test_what_is_written_to_a_file_comes_whole_or_not_at_all(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    output = succeed(capsys, "generate", run, "--prompt", "the", *GREEDY)
    assert "got 'X'" in fail(capsys, "generate", run, "--prompt", "X", "--output", str(path))
    assert path.read_text() == "old"
    assert succeed(capsys, "generate", run, "--prompt", "the", "--output", str(path), *GREEDY) == ""
    assert path.read_text(encoding="utf-8") == output


def test_unknown_characters_are_told_before_anything_is_shown(
    run: str, typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "that the model has seen: got '?', 'Z' in 'the Z?'; leave them out" in fail(
        capsys, "generate", run, "--prompt", "the Z?"
    )
    typed("the\nat Z\n")
    assert "got 'Z' in 'at Z'; leave" in fail(capsys, "generate", run, "--prompts", "-")
    typed(b"\xff\n")
    assert "standard input must be UTF-8" in fail(capsys, "generate", run, "--prompts", "-")
    assert "cannot read none.txt" in fail(capsys, "generate", run, "--prompts", "none.txt")


@pytest.mark.parametrize("kind", ["masked", "labelled", "images"])
def test_runs_that_do_not_continue_text_are_refused(
    kind: str, run_of: RunOf, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "does not continue text: it was trained on data.kind" in fail(capsys, "generate", run_of(kind))


def test_no_other_command_takes_a_run_that_does_not_translate(
    run_of: RunOf, typed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("language", "masked", "labelled", "images"):
        typed("the\n")
        assert "does not translate: it was trained on data.kind" in fail(capsys, "translate", run_of(kind))


def test_a_translator_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from headwise.train.loop import train
    from tiny_run import silent, tiny

    train(tiny(tmp_path / "run", max_steps=1, warmup_steps=1, average_last=1), silent())
    assert "does not continue text: it was trained on data.kind dates" in fail(
        capsys, "generate", str(tmp_path / "run")
    )
    assert "does not name classes: it was trained on data.kind dates" in fail(
        capsys, "classify", str(tmp_path / "run")
    )
