"""headwise draw RUN: the loss and learning rate of a run, or how its model tells positions apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_output
from headwise.cli.using import check_run, warn
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.see.drawing import Drawing


def draw(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = CommandParser(
        "draw",
        "RUN [--what curves] [-o FILE.png] [--length N]",
        "Draw a run: its loss and learning rate by step, its position encoding, or how alike positions are.",
    )
    parser.add_place("RUN", "directory that headwise train made; curves need its metrics.jsonl alone")
    parser.add_option(
        "what",
        Literal["curves", "positions", "similarity"],
        "curves: loss and learning rate; positions: the encoding as a heat map; similarity: of two positions "
        "by their distance (default curves)",
        "{curves,positions,similarity}",
    )
    parser.add_option(
        "output", str, "picture to write, .png or .svg (default curves.png and so on)", "FILE", short="o"
    )
    parser.add_option("length", int, "positions to draw (default: all of a table, else 64)", "N")
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    what = given.get("what", "curves")
    folder, output, length = Path(given["run"]), Path(given.get("output", f"{what}.png")), given.get("length")
    from headwise.see.drawing import form_of
    from headwise.see.fonts import require_matplotlib

    form_of(output)
    check_output(str(output))
    if length is not None and (what == "curves" or not 2 <= length <= 4096):
        told = "has no effect on curves; leave it out" if what == "curves" else "must be from 2 to 4096"
        raise ConfigError(f"--length {told}: got {length}")
    if what != "curves":
        check_run(folder)
    require_matplotlib("headwise draw")
    drawing = _drawing(folder, what, length)
    drawing.save(output)
    if drawing.notice:
        warn(drawing.notice)
    print(drawing.caption)
    print(f"{what}: {output}")
    return 0


def _drawing(folder: Path, what: str, length: int | None) -> Drawing:
    if what == "curves":
        from headwise.see.curves import draw_curves

        return draw_curves(folder)
    from headwise.checkpoint.run import load_run
    from headwise.see.positions import draw_positions
    from headwise.see.similarity import draw_similarity

    model = load_run(folder).model
    return (draw_positions if what == "positions" else draw_similarity)(model, length)
