"""translate, evaluate, attention and demo on a run that takes a second to train."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from headwise.cli import main
from headwise.train.loop import train
from tiny_run import silent, tiny

SOURCES = ["<de> May 3, 2011", "", "<zh> $5.20", "   ", "<de> 12%"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A trained run, bad at everything."""
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(tiny(folder), silent())
    return str(folder)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], None]:
    """Put text on standard input."""

    def put(text: str | bytes) -> None:
        content = text if isinstance(text, bytes) else text.encode("utf-8")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return put


def succeed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(arguments)
    output, error = capsys.readouterr()
    assert code == 0, error
    return output


def fail(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    output, error = capsys.readouterr()
    assert output == "" and error.startswith("headwise: ") and error.count("\n") == 1
    return error


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
    for name, content in (("in.txt", text.encode() + b"\n"), ("in.gz", gzip.compress(text.encode()))):
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
    assert "n_best must lie between 1 and beam_size" in fail(
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
    assert "got 2 lines in" in fail(capsys, *command, str(three))
    assert "cannot read" in fail(capsys, *command, str(tmp_path))
    assert "tokenize must be one of 13a" in fail(capsys, *command, str(two), "--tokenize", "words")


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


DEMO = [
    "--model.d_model=16 --model.num_heads=2 --model.d_ff=32",
    "--data.dates.train_size=64 --data.dates.validation_size=8 --data.dates.test_size=20",
    "--train.max_steps=2 --train.validate_every=2 --train.warmup_steps=1 --train.samples=0 --train.threads=1",
]


def demo_of(folder: Path) -> list[str]:
    return ["demo", "--run", str(folder), *" ".join(DEMO).split()]


@pytest.mark.slow
def test_demo_ends_with_the_exact_match_of_each_language(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(demo_of(tmp_path)) == 0
    output, error = capsys.readouterr()
    lines = output.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["German", "Chinese"]
    assert all(line.endswith("exact match 0.0 %") and "0 of 10 unseen right" in line for line in lines[-2:])
    assert output.count("wrong: ") == 12
    for name in ("attention.png", "positions.png"):
        assert str(tmp_path / name) in output
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert "Translating 20 test sentences" in error

    weights = (tmp_path / "model.safetensors").stat().st_mtime_ns
    assert main(demo_of(tmp_path)) == 0
    assert capsys.readouterr().out == output
    assert (tmp_path / "model.safetensors").stat().st_mtime_ns == weights, "a finished run was trained again"


@pytest.mark.slow
def test_demo_without_matplotlib_says_so_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    assert main(demo_of(tmp_path)) == 0
    output = capsys.readouterr().out
    assert "no pictures: drawing attention needs matplotlib, which is not installed: pip install" in output
    assert output.splitlines()[-1].endswith("exact match 0.0 %")
    assert not list(tmp_path.glob("*.png"))
