"""Scores with their signatures, of a text that fits its reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import SOURCES, fail, succeed


def test_evaluate_prints_scores_with_their_signatures(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, hypotheses = tmp_path / "source.txt", tmp_path / "hypotheses.txt"
    source.write_text("\n".join(SOURCES) + "\n", encoding="utf-8")
    paths = "--source", str(source), "--target"
    first = succeed(capsys, "evaluate", run, *paths, str(source), "--beam", "2", "--output", str(hypotheses))
    assert first.startswith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert "\nchrF2|nrefs:1|" in first and first.endswith("exact match = 20.00 (1 of 5)\n")
    again = succeed(
        capsys, "evaluate", run, *paths, str(hypotheses), "--beam", "2", "--lowercase", "--tokenize", "char"
    )
    assert "|case:lc|eff:no|tok:char|" in again and again.endswith("exact match = 100.00 (5 of 5)\n")


def test_mistakes_of_evaluate_are_one_line(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two, three = tmp_path / "two.txt", tmp_path / "three.txt"
    two.write_text("a\nb\n")
    three.write_text("a\nb\nc\n")
    command = "evaluate", run, "--source", str(two), "--target"
    said = fail(capsys, *command, str(three))
    assert f"got 2 lines in {two} and 3 in {three}; align them again" in said
    assert "cannot read" in fail(capsys, *command, str(tmp_path))
    assert "tokenize must be one of 13a" in fail(capsys, *command, str(two), "--tokenize", "words")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tokenize", "words"], "tokenize must be one of 13a"),
        (["--output", "."], "it is a directory; name a file"),
    ],
)
def test_a_mistake_is_told_before_the_work(
    options: list[str],
    said: str,
    run: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("<de> 12%\n")

    def work(*_: object, **__: object) -> None:
        raise AssertionError("translated first")

    monkeypatch.setattr("headwise.decode.translate.Translator.stream", work)
    assert said in fail(capsys, "evaluate", run, "--source", str(text), "--target", str(text), *options)
