"""What the commands that use a trained run share: its arguments, its model, its translator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.checkpoint.folder import check_run_folder
from headwise.cli.arguments import CommandParser
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.checkpoint.run import Run
    from headwise.decode.translate import Translator

BEAM, LENGTH_PENALTY, BATCH_TOKENS = 5, 1.0, 4_096


def add_decoding(parser: CommandParser) -> None:
    """The options of decoding."""
    parser.add_option("beam", int, f"hypotheses kept for each sentence; 1 is greedy (default {BEAM})", "N")
    parser.add_option(
        "length_penalty",
        float,
        "alpha of log P / ((5 + length) / 6)^alpha, GNMT's; above 0 favours longer translations "
        f"(default {LENGTH_PENALTY})",
        "A",
    )
    parser.add_option(
        "max_length", int, "most tokens of a translation (default: twice the source's and 20 more)", "L"
    )
    parser.add_option("batch_tokens", int, f"most tokens of one batch (default {BATCH_TOKENS})", "N")


def check_decoding(given: Mapping[str, Any]) -> None:
    """Refuse impossible values before a model is loaded.

    Errors: ConfigError for a number below what makes sense, and for more best ones than hypotheses.
    """
    for name, least, remedy in (
        ("beam", 1, "1 is greedy decoding"),
        ("max_length", 1, "leave it out for a limit that follows the source"),
        ("batch_tokens", 1, f"leave it out for {BATCH_TOKENS}"),
        ("n_best", 1, "1 asks for the best"),
        ("length_penalty", 0, "0 turns it off"),
    ):
        value = given.get(name)
        if value is not None and not least <= value < 2**31:
            raise ConfigError(f"--{name} must be at least {least} and below 2**31: got {value}; {remedy}")
    beam, n_best = given.get("beam", BEAM), given.get("n_best", 1)
    tokens = given.get("batch_tokens", BATCH_TOKENS)
    if "beam" in given and beam > max(tokens, BATCH_TOKENS):
        raise ConfigError(
            f"--beam must not pass --batch_tokens: got {beam} and {tokens}; raise --batch_tokens, 5 is usual"
        )
    if n_best > beam:
        raise ConfigError(
            f"--n_best must not pass --beam: got {n_best} and {beam}; add --beam {n_best} or ask for fewer"
        )


def check_run(folder: Path) -> None:
    """Tell at once, before torch is loaded, what can be no run.

    Errors: RunError.
    """
    check_run_folder(folder)


def make_translator(run: Run, given: Mapping[str, Any]) -> Translator:
    """The run's translator, with the options of add_decoding; warns of one that does nothing."""
    from headwise.decode.translate import Translator

    if given.get("beam") == 1 and "length_penalty" in given and "n_best" not in given:
        warn("--length_penalty has no effect with --beam 1, which ranks nothing; raise --beam")
    return Translator(
        run.model,
        run.tokenizer,
        beam_size=given.get("beam", BEAM),
        length_penalty=given.get("length_penalty", LENGTH_PENALTY),
        max_length=given.get("max_length"),
        batch_tokens=given.get("batch_tokens", BATCH_TOKENS),
        warn=warn,
    )


def warn(message: str) -> None:
    """A line on standard error; the work goes on."""
    print(f"headwise: warning: {message}", file=sys.stderr, flush=True)
