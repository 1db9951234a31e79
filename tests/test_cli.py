"""Of the whole program: every mistake is one line and exit code 2, help is quick, neither loads torch."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.commands import one_line
from headwise.cli import dispatch, main

ROOT = Path(__file__).resolve().parent.parent
DATES = str(ROOT / "recipes" / "dates.yaml")
HEAVY = {"torch", "numpy", "jaxtyping", "tokenizers", "sacrebleu", "babel", "matplotlib", "rich"}

# What is typed, and what the one line must say.
MISTAKES: list[tuple[list[str], str]] = [
    (["trian"], "unknown command trian; did you mean train?"),
    (
        ["fly"],
        "unknown command fly; there are demo, train, translate, generate, classify, evaluate, attention",
    ),
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
    (
        ["train", DATES, "--seed", "3"],
        "did you mean --data.dates.seed or --data.labelled.seed or --",
    ),
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
    (["train", DATES, "--data.dates.languages", "xx"], "languages must be one of de, zh, fr, ja: got 'xx'"),
    (["train", DATES, "--data.dates.languages", "{de"], "must be a list such as [a, b]: got '{de'"),
    (["train", DATES, "--data.dates.languages", "null"], "languages must be a list such as [a, b]: got "),
    (["train", DATES, "--data.dates.languages", "[de"], "must be a list such as [a, b]: got '[de'"),
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
    (
        ["translate", "run", "--beam", "0"],
        "--beam must be at least 1 and below 2**31: got 0; 1 is greedy decoding",
    ),
    (["translate", "run", "--beam", "-3"], "--beam must be at least 1"),
    (["translate", "run", "--n_best", "0"], "--n_best must be at least 1"),
    (["translate", "run", "--n_best", "6"], "--n_best must not pass --beam: got 6 and 5; add --beam 6"),
    (["translate", "run", "--length_penalty", "-1"], "--length_penalty must be at least 0"),
    (["translate", "run", "--length_penalty", "nan"], "--length_penalty must be a number: got 'nan'"),
    (["translate", "run", "--beem", "5"], "unknown option --beem; did you mean --beam?"),
    (["evaluate", "run"], "--source and --target must be given"),
    (["evaluate", "run", "--source", "s"], "--target must be given"),
    (["evaluate"], "RUN and --source and --target must be given"),
    (["attention", "run", "--source", "a", "--kind", "all"], "--kind must be one of cross, encoder, decoder"),
    (["generate"], "RUN must be given (see headwise generate --help)"),
    (["generate", "no/where"], "no run no/where; headwise train RECIPE makes one"),
    (["generate", "run", "more"], "unexpected argument 'more': headwise generate takes RUN"),
    (["generate", "run", "--prompt", "a", "--prompts", "b"], "--prompt and --prompts exclude each other"),
    (["generate", "run", "--max_new_tokens", "0"], "--max_new_tokens must be at least 1: got 0; 200 is"),
    (["generate", "run", "--seed", "-1"], "--seed must be at least 0: got -1"),
    (["generate", "run", "--seed", "9" * 30], "--seed must be a whole number below 2**63"),
    (["generate", "run", "--temperature", "-1"], "--temperature must be at least 0: got -1.0; 1 is neutral"),
    (["generate", "run", "--temperature", "hot"], "--temperature must be a number: got 'hot'"),
    (["generate", "run", "--top_k", "0"], "--top_k must be at least 1: got 0; 1 is greedy"),
    (["generate", "run", "--top_p", "0"], "--top_p must be above 0 and at most 1: got 0.0; 1 keeps all"),
    (["generate", "run", "--min_p", "2"], "--min_p must be between 0 and 1: got 2.0; 0 keeps all"),
    (["generate", "run", "--repetition_penalty", "0"], "--repetition_penalty must be between 0.01 and 100"),
    (["generate", "run", "--topk", "3"], "unknown option --topk; did you mean --top_k"),
    (["generate", "run", "--stop"], "--stop needs a value: expected text"),
    (["generate", "run", "--output", str(ROOT)], "it is a directory; name a file"),
    (["classify"], "RUN must be given (see headwise classify --help)"),
    (["classify", "no/where"], "no run no/where; headwise train RECIPE makes one"),
    (["classify", "run", "a", "b"], "unexpected argument 'b': headwise classify takes RUN INPUT"),
    (["classify", "run", "a", "--evaluate", "b"], "--evaluate and INPUT exclude each other"),
    (["classify", "run", "--output", "a", "--evaluate", "b"], "--evaluate and --output exclude each other"),
    (["classify", "run", "--picture", "a.png"], "--picture draws what --evaluate measures: add --evaluate"),
    (
        ["classify", "run", "--evaluate", "a", "--picture", "a.jpg"],
        "--picture must end in .png: got a.jpg; a.png",
    ),
    (["classify", "run", "--output", str(ROOT)], "it is a directory; name a file"),
    (["demo", "now"], "unexpected argument 'now': headwise demo takes options only"),
    (["demo", "--data.kind", "parallel"], "the demo is about dates: got data.kind=parallel"),
]


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
