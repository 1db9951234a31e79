"""What the commands that use a trained run share: its arguments, its model, its translator."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.cli.arguments import CommandParser
from headwise.errors import ConfigError, RunError

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

    Errors: ConfigError for a number below what makes sense.
    """
    for name, least in (
        ("beam", 1),
        ("max_length", 1),
        ("batch_tokens", 1),
        ("n_best", 1),
        ("length_penalty", 0),
    ):
        value = given.get(name)
        if value is not None and not least <= value < 2**31:
            raise ConfigError(f"--{name} must be at least {least} and below 2**31: got {value}")


def check_run(folder: Path) -> None:
    """Tell at once, before torch is loaded, what can be no run.

    Errors: RunError.
    """
    if not folder.exists():
        raise RunError(f"no run {folder}; headwise train RECIPE makes one")
    if not folder.is_dir():
        raise RunError(f"{folder} is a file: expected a run, the directory that headwise train made")
    if not (folder / "config.yaml").exists():
        raise RunError(f"{folder} is not a run: it has no config.yaml; headwise train RECIPE makes one")


def make_translator(run: Run, given: Mapping[str, Any]) -> Translator:
    """The run's translator, with the options of add_decoding."""
    from headwise.decode.translate import Translator

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
