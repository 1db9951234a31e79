"""`headwise doctor`: the report alone on standard output, the exit code, and one line for every mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.commands import fail, one_line
from doctor.subject_files import MODEL, SUBJECT, write
from headwise.cli import main
from headwise.cli.doctor import doctor
from headwise.doctor import examine
from headwise.doctor.check import Finding, Severity, Verdicted
from headwise.doctor.report import Report

LEAK = MODEL.replace("x = self.tokens(ids)", "x = self.tokens(ids)\n        x = x + x.mean(1, keepdim=True)")
DECODER = SUBJECT.replace('"encoder"', '"decoder"')


def report(*severities: Severity, file: str = "", line: int = 0) -> Report:
    found = tuple(
        Finding(f"HW10{n}", f"name-{n}", severity, "", file, line, (), "saw", "why", "fix")
        for n, severity in enumerate(severities, 1)
    )
    return Report("1", "it", {}, found, {"HW101": Verdicted("clear", "all")})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What reached the examination, which answers with `asked["report"]`."""
    seen: dict[str, Any] = {"report": report()}

    def examine_subject(subject: Any, **named: Any) -> Report:
        print("the user's model talks")
        seen.update(named, subject=subject)
        return seen["report"]

    monkeypatch.setattr(examine, "examine_subject", examine_subject)
    return seen


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write(tmp_path, "\nprint('the file talks')\n", MODEL, SUBJECT)


@pytest.mark.parametrize(
    ("severities", "fail_on", "code"),
    [
        ((), "note", 0),
        (("note",), "error", 0),
        (("note",), "warning", 0),
        (("note",), "note", 1),
        (("warning",), "error", 0),
        (("warning",), "warning", 1),
        (("error", "note"), "error", 1),
    ],
)
def test_the_exit_code_follows_fail_on(
    severities: tuple[Severity, ...], fail_on: str, code: int, asked: dict[str, Any], file: str
) -> None:
    asked["report"] = report(*severities)
    assert main(["doctor", file, "--fail-on", fail_on]) == code
    assert main(["doctor", file]) == int("error" in severities)


def test_standard_output_carries_the_report_alone(
    asked: dict[str, Any], file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", file, "--format", "json"]) == 0
    output, error = capfd.readouterr()
    assert json.loads(output)["target"] == "it"
    assert "the file talks" in error and "the user's model talks" in error


def test_options_reach_the_examination(asked: dict[str, Any], file: str) -> None:
    options = "--kind decoder --pad-id 3 --layout time-major --device cpu --select HW1 --ignore HW102"
    assert main(["doctor", file, *options.split()]) == 0
    subject = asked["subject"]
    assert (subject.kind, subject.pad_id, subject.layout) == ("decoder", 3, "time-major")
    assert asked["device"] == "cpu" and asked["target"] == file and asked["assumed"] == {}
    assert asked["making"].module(subject.model) is not None
    chosen = [f"HW{n}" for n in (101, 102, 201) if asked["select"](report_card(f"HW{n}"))]
    assert chosen == ["HW101"]


def report_card(id: str) -> Finding:
    return Finding(id, "name", "note", "", "", 0, (), "", "", "")


def test_pyproject_speaks_where_the_command_line_is_silent(
    asked: dict[str, Any], file: str, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.headwise]\nselect = ["HW2"]\nfail-on = "note"\npad-id = 7\nkind = "decoder"\nformat = "json"\n'
    )
    asked["report"] = report("note")
    assert main(["doctor", file]) == 1
    assert asked["subject"].pad_id == 7 and asked["subject"].kind == "decoder"
    assert asked["select"](report_card("HW201")) and not asked["select"](report_card("HW101"))
    assert main(["doctor", file, "--fail-on", "error", "--kind", "encoder", "--select", "HW1"]) == 0
    assert asked["subject"].kind == "encoder" and asked["select"](report_card("HW101"))


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("r.json", "{"),
        ("r.html", "<!doctype html>"),
        ("r.sarif", "{"),
        ("r.xml", "<?xml"),
        ("r.txt", "headwise"),
    ],
)
def test_a_file_takes_the_form_of_its_ending(
    name: str,
    begins: str,
    asked: dict[str, Any],
    file: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "reports" / name  # a missing directory is made, as every command does
    assert main(["doctor", file, "--output", str(path)]) == 0
    assert path.read_text().lower().startswith(begins) and path.read_text().endswith("\n")
    assert capfd.readouterr().out == ""
    assert main(["doctor", file, "--output", str(path), "--format", "json"]) == 0
    assert json.loads(path.read_text())


def test_a_comment_excuses_a_finding(
    asked: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, MODEL, SUBJECT, "\n# headwise: ignore[HW101]\n")
    last = len(Path(path).read_text().splitlines())
    asked["report"] = report("error", file=path, line=last)
    assert main(["doctor", path]) == 0
    assert "1 finding is excused" in " ".join(capfd.readouterr().out.split())
    asked["report"] = report("error", file=path, line=last - 1)
    assert main(["doctor", path]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "TARGET must be given"),
        (["a.py", "b.py"], "unexpected argument 'b.py'"),
        (["a.py", "--kind", "gpt"], "--kind must be one of decoder, encoder, encoder-decoder: got 'gpt'"),
        (["a.py", "--pad-id", "x"], "--pad-id must be a whole number: got 'x'"),
        (["a.py", "--pad_id", "1"], "unknown option --pad_id; did you mean --pad-id?"),
        (["a.py", "--fail-on", "all"], "--fail-on must be one of error, warning, note"),
        (["a.py", "--format", "pdf"], "--format must be one of text, json, html, sarif, junit"),
        (["a.py", "--select", "HW1O1"], "--select: no check is called 'HW1O1'; did you mean HW101?"),
        (
            ["a.py", "--select", ","],
            "--select must name a check: got ','; HW101, HW1 or causal-leak would do",
        ),
        (["a.py", "--select", ""], "--select must name a check: got ''"),
        (["a.py", "--load-timeout", "0"], "--load-timeout must be above 0 seconds: got 0"),
        (["a.py", "--load-timeout", "nan"], "--load-timeout must be a number: got 'nan'"),
        (["a.py", "--output", "."], "it is a directory; name a file"),
        (["a.py", "--output", f"{__file__}/r.html"], f"{__file__} is no directory; name another place"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in fail(capsys, "doctor", *arguments)


def test_a_mistake_and_the_help_load_no_torch() -> None:
    code = (
        "import sys\nfrom headwise.cli import main\n"
        "for words in (['--help'], ['x.py', '--kind', 'gpt'], ['x.py', '--select', 'HW1O1'], []):\n"
        "    main(['doctor', *words])\n"
        "main(['explain', '--help'])\nmain(['explain', 'a', 'b'])\n"
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.endswith("set()\n"), done.stderr
    assert "executes the file" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = (\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError: division by zero, at "),
        ("import sys\nsys.exit(0)\n", "it calls sys.exit(0)"),
        ("while True: pass\n", "stopped after 0.5 s"),
        ("x = 1\n", "found no nn.Module"),
    ],
)
def test_a_broken_file_is_one_line(
    source: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", write(tmp_path, source), "--load-timeout", "0.5"]) == 2
    output, error = capfd.readouterr()
    assert output == "" and said in one_line(error)


def test_a_model_that_ends_the_program_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    leaving = MODEL.replace("x = self.tokens(ids)", "raise SystemExit(7)")
    assert main(["doctor", write(tmp_path, leaving, SUBJECT)]) == 2
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("pad", ["99999", "21", "-5"])
def test_a_pad_id_that_is_no_token_id_is_refused(
    pad: str, file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", file, "--pad-id", pad]) == 2
    output, error = capfd.readouterr()
    said = f"headwise: the pad id must be one of the model's token ids, 0 to 20: got {pad}; give the id that"
    assert output == "" and said in error and "--pad-id" in error and "Traceback" not in error


def test_a_pad_id_that_the_model_takes_is_none_of_our_business(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    clamping = MODEL.replace("self.tokens(ids)", "self.tokens(ids.clamp(min=0))")
    path = write(tmp_path, clamping, SUBJECT)
    assert main(["doctor", path, "--pad-id", "-1", "--select", "HW101"]) == 0
    assert "-1" in capfd.readouterr().out


def test_a_bug_of_ours_is_one_line_and_no_finding(
    monkeypatch: pytest.MonkeyPatch, file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def examine_subject(*_: Any, **named: Any) -> Report:
        raise KeyError("no such value")

    monkeypatch.setattr(examine, "examine_subject", examine_subject)
    assert main(["doctor", file]) == 2
    output, error = capfd.readouterr()
    last = one_line(error.removeprefix("the file talks\n"))
    assert output == "" and "KeyError: 'no such value', at " in last and "HEADWISE_TRACEBACK=1" in last
    monkeypatch.setenv("HEADWISE_TRACEBACK", "1")
    assert main(["doctor", file]) == 2
    output, error = capfd.readouterr()
    assert output == "" and "Traceback (most recent call last)" in error and "in examine_subject" in error
    assert error.splitlines()[-1].startswith("headwise: ")


@pytest.mark.slow
def test_a_fault_is_found_as_a_user_runs_it_and_its_repair_is_clean(tmp_path: Path) -> None:
    def run(path: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headwise", "doctor", path, "--format", "json", "--select", "HW101"]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    path = write(tmp_path, "\nprint('hello')\n", LEAK, DECODER)
    first, second = run(path), run(path)
    assert first.returncode == second.returncode == 1
    assert first.stdout == second.stdout  # byte for byte
    found = json.loads(first.stdout)["findings"]
    assert [f["name"] for f in found] == ["causal-leak"] and found[0]["file"] == path
    assert first.stderr == "hello\n"
    mask = "nn.Transformer.generate_square_subsequent_mask(x.size(1))"
    causal = MODEL.replace("self.layer(x)", f"self.layer(x, {mask})")
    repaired = run(write(tmp_path, causal, DECODER))
    assert repaired.returncode == 0 and json.loads(repaired.stdout)["findings"] == []


def test_the_command_is_a_function_of_its_arguments(asked: dict[str, Any], file: str) -> None:
    assert doctor([file]) == 0
