"""What the commands that use a run share: limits before the model is loaded, a translator after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwise.checkpoint.run import load_translator
from headwise.cli.arguments import CommandParser
from headwise.cli.using import BEAM, add_decoding, check_decoding, check_run, make_translator, warn
from headwise.errors import ConfigError, RunError


def test_options_left_out_are_not_there() -> None:
    parser = CommandParser("translate", "", "")
    add_decoding(parser)
    assert parser.parse([]) == {}
    assert parser.parse(["--beam", "2", "--length_penalty", "0.5"]) == {"beam": 2, "length_penalty": 0.5}


@pytest.mark.parametrize(
    "given", [{}, {"beam": 1, "n_best": 1}, {"n_best": BEAM}, {"length_penalty": 0.0}, {"beam": 4_096}]
)
def test_what_makes_sense_is_not_refused(given: dict[str, Any]) -> None:
    check_decoding(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"beam": 0}, r"--beam must be at least 1 and below 2\*\*31: got 0; 1 is greedy decoding"),
        ({"beam": 2**31}, "--beam must be at least 1"),
        ({"beam": 2**31 - 1}, "--beam must not pass --batch_tokens"),
        ({"max_length": 0}, "got 0; leave it out for a limit that follows the source"),
        ({"batch_tokens": -1}, "got -1; leave it out for 4096"),
        ({"n_best": 0}, "got 0; 1 asks for the best"),
        ({"length_penalty": -0.1}, "--length_penalty must be at least 0 .*; 0 turns it off"),
        ({"length_penalty": float("nan")}, "--length_penalty must be at least 0"),
        ({"n_best": BEAM + 1}, f"must not pass --beam: got {BEAM + 1} and {BEAM}; add --beam {BEAM + 1}"),
        ({"n_best": 3, "beam": 2}, "got 3 and 2; add --beam 3 or ask for fewer"),
    ],
)
def test_what_does_not_is_refused_with_a_way_out(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_decoding(given)


def test_what_can_be_no_run_is_told(run: str, tmp_path: Path) -> None:
    check_run(Path(run))
    for path in (tmp_path / "none", tmp_path, Path(run) / "config.yaml"):
        with pytest.raises(RunError):
            check_run(path)


def test_the_translator_has_the_options(run: str) -> None:
    loaded = load_translator(Path(run))
    text = "<de> May 3, 2011"
    best = make_translator(loaded, {"beam": 3, "max_length": 4, "length_penalty": 0.0}).n_best([text], 3)[0]
    assert len({found.text for found in best}) > 1
    with pytest.raises(ConfigError, match="beam_size=2"):
        make_translator(loaded, {"beam": 2}).n_best([text], 3)
    with pytest.raises(ConfigError, match="max_length must lie between 1"):
        make_translator(loaded, {"max_length": 10**6})


def test_a_length_penalty_that_does_nothing_is_told_of(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_translator(Path(run))
    for given in (
        {"beam": 1},
        {"length_penalty": 0.3},
        {"beam": 2, "length_penalty": 0.3},
        {"beam": 1, "length_penalty": 0.3, "n_best": 1},  # the score has it
    ):
        make_translator(loaded, given)
        assert capsys.readouterr().err == ""
    make_translator(loaded, {"beam": 1, "length_penalty": 0.3})
    assert capsys.readouterr().err == (
        "headwise: warning: --length_penalty has no effect with --beam 1, which ranks nothing; raise --beam\n"
    )


def test_a_warning_is_a_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    warn("three lines were cut")
    assert capsys.readouterr() == ("", "headwise: warning: three lines were cut\n")
