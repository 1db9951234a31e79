"""headwise doctor TARGET: name the known mistakes in a model, each with its line, measurement and fix."""

from __future__ import annotations

import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_output
from headwise.doctor.settings import Selection, check_some, check_words, read_settings, words
from headwise.errors import ConfigError
from headwise.files import write_text_atomically

if TYPE_CHECKING:
    from headwise.doctor.report import Report

SECONDS = 60.0
FOUND = 1  # the exit code
_SUFFIXES = {".json": "json", ".html": "html", ".htm": "html", ".sarif": "sarif", ".xml": "junit"}


@dataclass(frozen=True)
class _Wish:
    """What the command line and pyproject.toml ask for together."""

    target: str
    select: Selection
    fail_on: str
    form: str
    output: str | None
    seconds: float
    is_verbose: bool
    device: str | None
    told: dict[str, Any]


def doctor(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = _parser()
    if parser.answers_help(arguments):
        return 0
    wish = _wish(parser.parse(arguments))
    report = _examined(wish)
    _write(report, wish)
    return 0 if report.ok(wish.fail_on) else FOUND


def _parser() -> CommandParser:
    parser = CommandParser(
        "doctor",
        "TARGET [--kind KIND] [--pad-id N] [--format FORM] [--output FILE] [--fail-on SEVERITY] ...",
        "Examine a PyTorch Transformer: which known mistake keeps it from learning, at which line, with the "
        "measurement that shows it and what to do. The doctor executes the file that it is given, as Python "
        "would: give it only files that you trust.",
        "A file may define subject(), which returns a dict with model, inputs and, where you have them, "
        "call, kind, pad_id, targets, loss, optimizer, generate, train_step, layout. Without it a function "
        "such as build_model(), a model, or a class with defaults is looked for, and the report says what "
        "was assumed. [tool.headwise] in pyproject.toml may set select, ignore, fail-on, kind, pad-id, "
        "format and device; a comment '# headwise: ignore[HW101]' excuses its line. Exit code: 0 no "
        "error (or nothing that --fail-on names), 1 errors, 2 a mistake in the arguments, "
        "or a model that cannot be examined.",
    )
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
    parser.add_option(
        "format",
        Literal["text", "json", "html", "sarif", "junit"],
        "text, json, html, sarif or junit (default: as --output ends, else text)",
        "FORM",
    )
    parser.add_option(
        "output", str, "file for the report; its directory is made (default: standard output)", "FILE"
    )
    parser.add_option(
        "fail-on",
        Literal["error", "warning", "note"],
        "least severity that gives exit code 1: error, warning or note (default error)",
        "SEVERITY",
    )
    parser.add_option("select", str, "only these checks: HW101, HW1 or causal-leak, with commas", "LIST")
    parser.add_option("ignore", str, "all but these checks", "LIST")
    parser.add_option("device", str, "where the model runs (default: where it is)", "NAME")
    parser.add_option(
        "load-timeout", float, f"most seconds for loading the file (default {SECONDS:g})", "SECONDS"
    )
    parser.add_flag("verbose", "show the verdict of every check, and cut nothing short")
    return parser


def _wish(given: Mapping[str, Any]) -> _Wish:
    """Options stand above pyproject.toml.

    Errors: ConfigError for what cannot be, before torch is loaded.
    """
    for name in ("select", "ignore"):
        if name in given:
            check_words(words(given[name]), f"--{name}")
    if "select" in given:
        check_some(words(given["select"]), "--select", given["select"])
    seconds = given.get("load-timeout", SECONDS)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ConfigError(f"--load-timeout must be above 0 seconds: got {seconds:g}; {SECONDS:g} is usual")
    output = given.get("output")
    if output is not None:
        check_output(output)
    filed = read_settings(given["target"]).values
    ending = _SUFFIXES.get(Path(output).suffix.lower()) if output else None

    def chosen(name: str, default: Any = None) -> Any:
        return given.get(name, filed.get(name, default))

    return _Wish(
        target=given["target"],
        select=Selection(words(chosen("select", ())), words(chosen("ignore", ()))),
        fail_on=chosen("fail-on", "error"),
        form=given.get("format") or ending or filed.get("format", "text"),
        output=output,
        seconds=seconds,
        is_verbose=given["verbose"],
        device=chosen("device"),
        told={"kind": chosen("kind"), "pad_id": chosen("pad-id"), "layout": given.get("layout")},
    )


def _examined(wish: _Wish) -> Report:
    from headwise.doctor.examine import examine_subject
    from headwise.doctor.load import load
    from headwise.doctor.settings import without_suppressed

    loaded = load(wish.target, **wish.told, seconds=wish.seconds)
    with loaded.running():
        report = examine_subject(
            loaded.subject,
            making=loaded.making,
            select=wish.select,
            device=wish.device,
            target=wish.target,
            assumed=loaded.assumed,
            notes=loaded.notes,
        )
    return without_suppressed(report)


def _write(report: Report, wish: _Wish) -> None:
    """The report to its file, or to standard output: in colour and as wide as a terminal is."""
    is_seen = wish.output is None and sys.stdout.isatty()
    forms = {
        "json": report.to_json,
        "html": report.to_html,
        "sarif": report.to_sarif,
        "junit": report.to_junit,
    }
    if wish.form == "text":
        width = max(60, min(120, shutil.get_terminal_size((100, 24)).columns)) if is_seen else 100
        colour = is_seen and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        text = report.to_text(color=colour, width=width, verbose=wish.is_verbose)
    else:
        text = forms[wish.form]()
    text = text if text.endswith("\n") else f"{text}\n"
    if wish.output is not None:
        write_text_atomically(Path(wish.output), text)
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
    sys.stdout.buffer.flush()
