"""What the commands that look at a model share: how it is named and told, and where the report goes."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from headwise.cli.arguments import CommandParser
from headwise.errors import ConfigError
from headwise.files import write_text_atomically

SECONDS = 60.0


def add_target(parser: CommandParser) -> None:
    """TARGET, and what may be told of it."""
    parser.add_place("TARGET", "model.py, model.py:name, package.module:name, or the directory of a run")
    parser.add_option(
        "kind",
        Literal["decoder", "encoder", "encoder-decoder"],
        "what the model is (default: what its subject says, or what can be told from it)",
        "KIND",
    )
    parser.add_option("pad-id", int, "the token id that fills rows up", "N")
    parser.add_option(
        "layout", Literal["batch-first", "time-major"], "order of the axes of token ids", "LAYOUT"
    )


def add_running(parser: CommandParser) -> None:
    """Where the model runs, and how long loading it may take."""
    parser.add_option("device", str, "where the model runs (default: where it is)", "NAME")
    parser.add_option(
        "load-timeout", float, f"most seconds for loading the file (default {SECONDS:g})", "SECONDS"
    )


def check_seconds(given: Mapping[str, Any]) -> float:
    """The time that loading may take.

    Errors: ConfigError for one that is not above 0.
    """
    seconds = given.get("load-timeout", SECONDS)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ConfigError(f"--load-timeout must be above 0 seconds: got {seconds:g}; {SECONDS:g} is usual")
    return seconds


def write_report(form: Callable[[bool, int], str], output: str | None) -> None:
    """A report to its file, or to standard output: in colour and as wide as a terminal is.

    form: called with whether there is colour, and with the width in columns.
    """
    is_seen = output is None and sys.stdout.isatty()
    width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns)) if is_seen else 100
    color = is_seen and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    text = form(color, width)
    text = text if text.endswith("\n") else f"{text}\n"
    if output is not None:
        write_text_atomically(Path(output), text)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
