"""headwise doctor TARGET: name the known mistakes in a model, each with its line, measurement and fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_output
from headwise.cli.targets import add_running, add_target, check_seconds, write_report
from headwise.doctor.settings import Selection, check_some, check_words, read_settings, words

if TYPE_CHECKING:
    from headwise.doctor.report import Report

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
    add_target(parser)
    parser.add_option(
        "format",
        Literal["text", "json", "html", "sarif", "junit"],
        "text, json, html, sarif or junit (default: as --output ends, else text)",
        "FORM",
    )
    parser.add_option(
        "output",
        str,
        "file for the report; its directory is made (default: standard output)",
        "FILE",
        short="o",
    )
    parser.add_option(
        "fail-on",
        Literal["error", "warning", "note"],
        "least severity that gives exit code 1: error, warning or note (default error)",
        "SEVERITY",
    )
    parser.add_option("select", str, "only these checks: HW101, HW1 or causal-leak, with commas", "LIST")
    parser.add_option("ignore", str, "all but these checks", "LIST")
    add_running(parser)
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
    seconds = check_seconds(given)
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
    """The report in its form, to where it was asked for."""
    forms = {
        "json": report.to_json,
        "html": report.to_html,
        "sarif": report.to_sarif,
        "junit": report.to_junit,
    }

    def form(color: bool, width: int) -> str:
        if wish.form == "text":
            return report.to_text(color=color, width=width, verbose=wish.is_verbose)
        return forms[wish.form]()

    write_report(form, wish.output)
