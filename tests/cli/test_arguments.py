"""One scanner of words, one judge of values: what is typed means what it says, or is a ConfigError."""

from __future__ import annotations

from typing import Literal

import pytest

from headwise.cli.arguments import CommandParser, brief, nearest
from headwise.cli.settings import sections
from headwise.errors import ConfigError


@pytest.fixture
def parser() -> CommandParser:
    parser = CommandParser("paint", "WHAT [INPUT]", "Paint something.", "The end.")
    parser.add_place("WHAT", "what to paint")
    parser.add_place("INPUT", "from where", default="-")
    parser.add_option("beam", int, "how many, 50% of them", "N")
    parser.add_option("kind", Literal["oil", "ink"], "with what", "{oil,ink}")
    parser.add_option("title", str, "its name", "TEXT")
    parser.add_texts("word", "what to paint", "TEXT")
    parser.add_option("files", tuple[str, ...], "what to look at", "LIST")
    parser.add_flag("loud", "say it")
    return parser


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["a"], {}),
        (["a", "b"], {"input": "b"}),
        (["a", "-"], {}),
        (["--", "--a"], {"what": "--a"}),
        (["--beam", "3", "a"], {"beam": 3}),
        (["a", "--beam=3", "--beam", "4"], {"beam": 4}),
        (["a", "--beam", "-4"], {"beam": -4}),
        (["--loud", "a", "--kind=ink"], {"loud": True, "kind": "ink"}),
        (["a", "--title", "null"], {"title": "null"}),
        (["a", "--title", "-x = y"], {"title": "-x = y"}),
        (["a", "--title="], {"title": ""}),
        (["a", "--files", "notes.txt"], {"files": ("notes.txt",)}),
        (["a", "--files", "7: b, c"], {"files": ("7: b, c",)}),
        (["a", "--files", "[b, c.txt]"], {"files": ("b", "c.txt")}),
        (["a", "--files=[]", "--beam", "3"], {"files": (), "beam": 3}),
        (["--word", "x", "a", "--word=null", "--word", "x"], {"word": ["x", "null", "x"]}),
    ],
)
def test_words_in_any_order(words: list[str], found: dict[str, object], parser: CommandParser) -> None:
    assert parser.parse(words) == {"what": "a", "input": "-", "loud": False, "word": []} | found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], r"WHAT must be given \(see headwise paint --help\)"),
        (["a", "b", "c"], "unexpected argument 'c': headwise paint takes WHAT INPUT"),
        (["a", "--beem", "3"], "unknown option --beem; did you mean --beam"),
        (["a", "-b", "3"], "unknown option -b"),
        (["a", "--loud=1"], "--loud takes no value: got '1'"),
        (["a", "--beam"], "--beam needs a value: expected a whole number"),
        (["a", "--beam", "--loud"], "--beam needs a value: expected a whole number$"),
        (["a", "--title", "--loud"], "for a text that begins with --, write --title=--loud"),
        (["a", "--beam", "x"], "--beam must be a whole number: got 'x'"),
        (["a", "--beam", "null"], "--beam must be a whole number: got 'null'"),
        (["a", "--beam", str(2**63)], r"--beam must be a whole number below 2\*\*63"),
        (["a", "--files", "[b"], r"--files must be a list such as \[a, b\]: got '\[b'"),
        (["a", "--files", "null"], r"--files must be a list such as \[a, b\]: got"),
        (["a", "--files="], r"--files must be a list such as \[a, b\]: got"),
        (["a", "--kind", "chalk"], "--kind must be one of oil, ink: got 'chalk'"),
    ],
)
def test_what_cannot_be_taken_is_named(words: list[str], said: str, parser: CommandParser) -> None:
    with pytest.raises(ConfigError, match=said):
        parser.parse(words)


def test_of_several_wrong_values_the_wrong_one_is_named(parser: CommandParser) -> None:
    with pytest.raises(ConfigError, match="--kind must be one of"):
        parser.parse(["a", "--beam", "3", "--title", "t", "--kind", "x"])


def test_a_short_name_stands_for_the_long_one(
    parser: CommandParser, capsys: pytest.CaptureFixture[str]
) -> None:
    parser.add_option("output", str, "where to", "FILE", short="o")
    for words in (["-o", "x.png"], ["-o=x.png"], ["--output", "x.png"]):
        assert parser.parse(["a", *words])["output"] == "x.png"
    with pytest.raises(ConfigError, match="--output needs a value: expected text"):
        parser.parse(["a", "-o"])
    with pytest.raises(ConfigError, match="unknown option -p"):
        parser.parse(["a", "-p", "x.png"])
    assert parser.answers_help(["-h"]) and "-o FILE, --output FILE" in capsys.readouterr().out


def test_a_required_option_is_asked_for(parser: CommandParser) -> None:
    parser.add_option("size", int, "how large", "N", is_required=True)
    with pytest.raises(ConfigError, match="WHAT and --size must be given"):
        parser.parse([])
    assert parser.parse(["a", "--size", "3"])["size"] == 3


def test_values_of_a_recipe_keep_their_texts() -> None:
    parser = CommandParser("train", "RECIPE", "")
    parser.add_settings(sections())
    assert parser.check({"run": "null", "model.d_model": 64, "data.dates.languages": ["de"]}, "r.yaml") == {
        "run": "null",
        "model.d_model": 64,
        "data.dates.languages": ("de",),
    }
    assert parser.check({"model.d_ff": None}, "r.yaml") == {"model.d_ff": None}
    with pytest.raises(ConfigError, match=r"r\.yaml: model\.d_model must be a whole number: got 1\.5"):
        parser.check({"model.d_model": 1.5}, "r.yaml")


def test_help_is_printed_only_when_asked_for(
    parser: CommandParser, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert not parser.answers_help(["a", "--loud"])
    assert capsys.readouterr().out == ""
    assert parser.answers_help(["--nonsense", "-h"])
    output = capsys.readouterr().out
    assert output.startswith("usage: headwise paint WHAT [INPUT]\n") and output.endswith("The end.\n")
    for words in ("WHAT", "--beam N", "how many, 50% of them", "--kind {oil,ink}", "--loud"):
        assert words in output


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("model.d_mode", "; did you mean model.d_model?"),
        ("d_model", "; did you mean model.d_model?"),
        ("seed", "; did you mean data.seed or train.seed?"),
        ("model", "; it is a section: set one of its values, such as model.d_model"),
        ("zebra", ""),
    ],
)
def test_what_is_near_is_proposed(wrong: str, hint: str) -> None:
    assert nearest(wrong, ["model.d_model", "data.seed", "train.seed", "train.rate"]) == hint


def test_a_value_in_a_message_is_short() -> None:
    deep: list[object] = []
    for _ in range(50):
        deep = [deep]
    for value in ("x" * 10_000, "1" * 5000, [["a"] * 100] * 100, {"a": "b" * 1000}, deep):
        assert len(brief(value)) < 300
    assert brief("abc") == "'abc'"
