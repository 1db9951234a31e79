"""headwise trace TARGET: one forward pass step by step, with shapes, lines, FLOPs and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_output
from headwise.cli.targets import add_running, add_target, check_seconds, write_report
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.see.walk.walk import Walk

_SUFFIXES = {".json": "json", ".html": "html", ".htm": "html"}


@dataclass(frozen=True)
class _Wish:
    """What the command line asks for."""

    target: str
    form: str
    output: str | None
    seconds: float
    shows_all: bool
    device: str | None
    told: dict[str, Any]


def trace(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = _parser()
    if parser.answers_help(arguments):
        return 0
    wish = _wish(parser.parse(arguments))
    walk = _walked(wish)
    write_report(lambda color, width: _form(walk, wish, color, width), wish.output)
    if walk.failed is not None:
        from headwise.see.walk.writing import one_line

        raise ConfigError(one_line(walk.failed))
    return 0


def _form(walk: Walk, wish: _Wish, color: bool, width: int) -> str:
    if wish.form == "json":
        return walk.to_json()
    return walk.to_html() if wish.form == "html" else walk.to_text(color, width, wish.shows_all)


def _parser() -> CommandParser:
    parser = CommandParser(
        "trace",
        "TARGET [--all] [--format FORM] [--output FILE] [--kind KIND] [--pad-id N] ...",
        "Walk through one forward pass: each step with its operation, its shape with named axes, the line "
        "that wrote it, FLOPs and memory; attention, feed-forward layers, norms and residuals are recognised "
        "however they are written, and layers that repeat are folded. The file that it is given is executed, "
        "as Python would: give it only files that you trust.",
        "TARGET and its options are those of headwise doctor. Exit code: 0 the pass ran through, 2 a mistake "
        "in the arguments, or a pass that fails: the walk up to there is written first.",
    )
    add_target(parser)
    parser.add_flag("all", "list every operation of torch's, views and transposes too")
    parser.add_option(
        "format",
        Literal["text", "json", "html"],
        "text, json or html (default: as --output ends, else text)",
        "FORM",
    )
    parser.add_option(
        "output",
        str,
        "file for the walk; its directory is made (default: standard output)",
        "FILE",
        short="o",
    )
    add_running(parser)
    return parser


def _wish(given: Mapping[str, Any]) -> _Wish:
    """Errors: ConfigError for what cannot be, before torch is loaded."""
    output = given.get("output")
    if output == "":
        raise ConfigError("--output must name a file: got an empty name")
    if output is not None:
        check_output(output)
    ending = _SUFFIXES.get(Path(output).suffix.lower()) if output else None
    return _Wish(
        target=given["target"],
        form=given.get("format") or ending or "text",
        output=output,
        seconds=check_seconds(given),
        shows_all=given["all"],
        device=given.get("device"),
        told={"kind": given.get("kind"), "pad_id": given.get("pad-id"), "layout": given.get("layout")},
    )


def _walked(wish: _Wish) -> Walk:
    from headwise.doctor.load import load
    from headwise.see.walk.walk import trace_subject

    loaded = load(wish.target, **wish.told, seconds=wish.seconds)
    with loaded.running():
        return trace_subject(loaded.subject, device=wish.device, target=wish.target, notes=loaded.notes)
