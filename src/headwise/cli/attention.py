"""headwise attention RUN: draw what each head looks at while one sentence is translated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_picture
from headwise.cli.using import check_run, warn

TITLES = {
    "cross": "Cross-attention",
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
}


def attention(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = CommandParser(
        "attention",
        "RUN --source TEXT [--output FILE.png] [--kind cross]",
        "Translate one sentence greedily and draw the attention weights of every layer and head.",
    )
    parser.add_place("RUN", "directory that headwise train made")
    parser.add_option("source", str, "the sentence", "TEXT", True)
    parser.add_option("output", str, "picture to write (default attention.png)", "FILE.png")
    parser.add_option(
        "kind",
        Literal["cross", "encoder", "decoder"],
        "cross: target to source; encoder, decoder: each to itself (default cross)",
        "{cross,encoder,decoder}",
    )
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    picture, kind = given.get("output", "attention.png"), given.get("kind", "cross")
    check_picture("--output", picture, "attention.png")
    folder, output = Path(given["run"]), Path(picture)
    check_run(folder)
    from headwise.see.fonts import require_matplotlib

    require_matplotlib("headwise attention")
    from headwise.checkpoint.run import load_translator
    from headwise.see.maps import draw_attention
    from headwise.see.reading import read_sentence

    run = load_translator(folder)
    reading = read_sentence(run.model, run.tokenizer, given["source"])
    seen = {"cross": reading.cross, "encoder": reading.encoder, "decoder": reading.decoder}[kind]
    title = f"{TITLES[kind]}: {given['source']}"
    notice = draw_attention(seen.maps, seen.read, seen.reading, output, title, seen.axes)
    if notice:
        warn(notice)
    print(reading.translation)
    print(f"{kind} attention: {output}")
    return 0
