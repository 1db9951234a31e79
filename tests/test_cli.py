"""Every mistake on the command line is one line and exit code 2; help is quick and complete."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from headwise.cli import dispatch, main
from headwise.cli.settings import sections
from headwise.config import RunConfig
from headwise.errors import Stopped

ROOT = Path(__file__).resolve().parent.parent
DATES = str(ROOT / "recipes" / "dates.yaml")
HEAVY = {"torch", "numpy", "jaxtyping", "tokenizers", "sacrebleu", "babel", "matplotlib", "rich"}

# What is typed, and what the one line must say.
MISTAKES: list[tuple[list[str], str]] = [
    (["trian"], "unknown command trian; did you mean train?"),
    (["fly"], "unknown command fly; there are demo, train, translate, evaluate, attention"),
    (["--verbose"], "unknown option --verbose"),
    (["train"], "RECIPE must be given (see headwise train --help)"),
    (["train", "no/where.yaml"], "no recipe no/where.yaml; recipes/dates.yaml is one to start from"),
    (["train", f"{DATES[:-5]}.yml"], "did you mean"),
    (["train", str(ROOT)], "is a directory: expected a recipe"),
    (["train", sys.executable], "must be YAML in UTF-8: line 1 holds the byte 0x"),
    (["train", "\0"], "cannot read the recipe"),
    (["train", DATES, "more"], "unexpected argument 'more': headwise train takes RECIPE"),
    (["train", DATES, "--model.d_mode", "3"], "unknown option --model.d_mode; did you mean --model.d_model?"),
    (["train", DATES, "--d_model", "3"], "unknown option --d_model; did you mean --model.d_model?"),
    (["train", DATES, "--seed", "3"], "did you mean --data.dates.seed or --train.seed?"),
    (["train", DATES, "--model", "x"], "unknown option --model; it is a section: set one of its values"),
    (["train", DATES, "--print"], "did you mean --print_config?"),
    (["train", DATES, "-x"], "unknown option -x"),
    (["train", DATES, "--print_config=yes"], "--print_config takes no value: got 'yes'"),
    (["train", DATES, "--model.d_model"], "--model.d_model needs a value: expected a whole number"),
    (["train", DATES, "--model.d_model", "--run", "x"], "--model.d_model needs a value"),
    (["train", DATES, "--model.d_model", "abc"], "--model.d_model must be a whole number: got 'abc'"),
    (["train", DATES, "--model.d_model", "1.5"], "--model.d_model must be a whole number: got '1.5'"),
    (["train", DATES, "--model.d_model="], "--model.d_model must be a whole number: got ''"),
    (["train", DATES, "--model.d_model", "1" * 5000], "--model.d_model must be a whole number: got '111"),
    (
        ["train", DATES, "--model.d_model", "1" * 400],
        "--model.d_model must be a whole number below 2**63: got 111",
    ),
    (["train", DATES, "--model.dropout", "lots"], "--model.dropout must be a number: got 'lots'"),
    (["train", DATES, "--model.dropout", "[" * 2000], "--model.dropout must be a number: got '[[["),
    (["train", DATES, "--model.norm", "pst"], "--model.norm must be one of post, pre: got 'pst'"),
    (["train", DATES, "--model.tie_embeddings", "maybe"], "must be true or false: got 'maybe'"),
    (["train", DATES, "--train.threads", "x"], "--train.threads must be a whole number or null: got 'x'"),
    (["train", DATES, "--data.dates.languages", "de"], "must be a list such as [de, zh]: got 'de'"),
    (["train", DATES, "--data.dates.languages", "[de"], "must be a list such as [de, zh]: got '[de'"),
    (
        ["train", DATES, "--data.dates.languages", "[de,xx]"],
        "languages must be one of de, zh, fr, ja: got 'xx'",
    ),
    (
        ["train", DATES, "--model.num_heads", "7"],
        "num_heads must divide d_model: got d_model=128, num_heads=7",
    ),
    (["train", DATES, "--run", " "], "run must name a directory"),
    (["translate"], "RUN must be given"),
    (["translate", "no/where"], "no run no/where; headwise train RECIPE makes one"),
    (["translate", DATES], "is a file: expected a run"),
    (["translate", str(ROOT)], "is not a run: it has no config.yaml"),
    (["translate", "run", "a", "b"], "unexpected argument 'b': headwise translate takes RUN INPUT"),
    (["translate", "run", "--beam", "0"], "--beam must be at least 1 and below 2**31: got 0"),
    (["translate", "run", "--beam", "-3"], "--beam must be at least 1"),
    (["translate", "run", "--n_best", "0"], "--n_best must be at least 1"),
    (["translate", "run", "--length_penalty", "-1"], "--length_penalty must be at least 0"),
    (["translate", "run", "--length_penalty", "nan"], "--length_penalty must be a number: got 'nan'"),
    (["translate", "run", "--beem", "5"], "unknown option --beem; did you mean --beam?"),
    (["evaluate", "run"], "--source and --target must be given"),
    (["evaluate", "run", "--source", "s"], "--target must be given"),
    (["evaluate"], "RUN and --source and --target must be given"),
    (["attention", "run", "--source", "a", "--kind", "all"], "--kind must be one of cross, encoder, decoder"),
    (["demo", "now"], "unexpected argument 'now': headwise demo takes options only"),
    (["demo", "--data.kind", "parallel"], "the demo is about dates: got data.kind=parallel"),
]


def one_line(error: str) -> str:
    assert error.startswith("headwise: ") and error.endswith("\n")
    assert error.count("\n") == 1 and len(error) < 500
    assert "Traceback" not in error and "Parser key" not in error and "usage:" not in error
    return error


@pytest.mark.parametrize(("arguments", "said"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_one_line_and_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert said in one_line(error)


def test_a_mistake_loads_nothing_heavy() -> None:
    cases = [arguments for arguments, _ in MISTAKES if "\0" not in arguments]
    code = (
        "import sys\nfrom headwise.cli import main\n"
        f"codes = {{main(case) for case in {cases!r}}}\n"
        "codes |= {main([*command, '--help']) for command in ([], ['train'], ['translate'], ['demo'])}\n"
        "print(codes, {name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    codes, loaded = done.stdout.splitlines()[-1].split("} {")
    assert codes in ("{0, 2", "{2, 0"), done.stderr
    assert not HEAVY & set(loaded.replace("'", "").strip("}").split(", "))


def seconds_of_help(*arguments: str) -> tuple[float, float]:
    """Wall and processor time of the best of five; others may be at work on the same cores."""
    wall: list[float] = []
    processor: list[float] = []
    for _ in range(5):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "headwise", *arguments, "--help"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        wall.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0 and done.stdout.startswith(b"usage: headwise") and not done.stderr
    return min(wall), min(processor)


def test_help_answers_in_under_0_4_seconds() -> None:
    assert seconds_of_help()[0] < 0.4


@pytest.mark.parametrize("command", dispatch.COMMANDS)
def test_help_of_a_command_needs_under_0_4_seconds_too(command: str) -> None:
    assert seconds_of_help(command)[1] < 0.4


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == main(["-h"]) == 0
    output = capsys.readouterr().out
    for name in dispatch.COMMANDS:
        assert f"\n  {name} " in output
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: headwise {name} ")


def test_help_of_a_command(golden: Any, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["translate", "--help"]) == 0
    golden("help_translate", capsys.readouterr().out)


def test_help_has_every_setting_with_its_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["train", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()

    def walk(cls: type, prefix: str) -> set[str]:
        hints = get_type_hints(cls)
        found: set[str] = set()
        for field in fields(cls):
            hint = hints[field.name]
            found |= walk(hint, f"{prefix}{field.name}.") if is_dataclass(hint) else {prefix + field.name}
        return found

    paths = walk(RunConfig, "")
    settings = [setting for section in sections() for setting in section.settings]
    assert {setting.path for setting in settings} == paths and len(paths) > 50
    for setting in settings:
        at = next(i for i, line in enumerate(lines) if line.strip().startswith(f"{setting.option} "))
        assert setting.help and setting.help[:40] in " ".join(lines[at : at + 2])


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
