"""`headwise trace`: the walk alone on standard output, its forms, and a failing pass told in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import fail, one_line, succeed
from doctor.subject_files import MODEL, SUBJECT, write
from headwise.cli import main
from tiny_run import ENVIRONMENT

WRONG = MODEL.replace("self.head = nn.Linear(width, vocab)", "self.head = nn.Linear(width + 1, vocab)")


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write(tmp_path, "\nprint('the file talks')\n", MODEL, SUBJECT)


def test_standard_output_carries_the_walk_alone(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", file]) == 0
    output, error = capfd.readouterr()
    assert output.startswith(f"headwise trace  {file}\n") and "the file talks" in error
    assert "block x 2  blocks.0.layer .. blocks.1.layer" in output and "the file talks" not in output
    assert all(len(line) <= 100 for line in output.splitlines()) and "\x1b" not in output
    assert ". transpose" not in output


def test_all_lists_every_operation(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ". transpose" in succeed(capsys, "trace", file, "--all")


@pytest.mark.parametrize(
    ("name", "begins"), [("w.json", "{"), ("w.html", "<!DOCTYPE"), ("w.txt", "headwise")]
)
def test_a_file_takes_the_form_of_its_ending(
    name: str, begins: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "deep" / name
    assert succeed(capsys, "trace", file, "--output", str(output)) == ""
    assert output.read_text(encoding="utf-8").startswith(begins)


def test_json_on_standard_output(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(
        succeed(capsys, "trace", file, "--format", "json", "--kind", "encoder", "--device", "cpu")
    )
    assert told["version"] == "1" and told["target"] == file and told["failed"] is None


def test_a_pass_that_fails_is_told_up_to_there_and_then_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, WRONG, SUBJECT)
    assert main(["trace", file]) == 2
    output, error = capfd.readouterr()
    assert "block x 2" in output and "fails here" in output
    assert "the pass fails at" in one_line(error) and "RuntimeError" in error


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--format", "sarif"), "--format must be"),
        (("--load-timeout", "0"), "--load-timeout must be above 0"),
        (("--pad", "3"), "unknown option --pad"),
        (("--output", "."), "it is a directory"),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...], told: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in one_line(fail(capsys, "trace", file, *words))


def test_no_model_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no file" in one_line(fail(capsys, "trace", str(tmp_path / "none.py")))


def test_a_run_is_walked_through(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = succeed(capsys, "trace", run)
    assert "cross-attention" in output and "whole keys" in output and "causal" in output
    assert output.index("\nencoder") < output.index("\ndecoder") < output.index("logits")


def test_help_and_mistakes_load_no_torch() -> None:
    code = """
import sys
from headwise.cli import main
codes = [main(["trace", "--help"]), main(["trace", "x.py", "--load-timeout", "0"]), main(["trace"])]
heavy = [name for name in ("torch", "numpy", "jaxtyping") if name in sys.modules]
assert codes == [0, 2, 2] and not heavy, (codes, heavy)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT, capture_output=True)


def test_an_output_without_a_name_is_told_as_that(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "empty name" in fail(capsys, "trace", file, "--output", "")
