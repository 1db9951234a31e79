"""headwise translate RUN: lines in, translations out, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import is_terminal, lines_of, write_lines
from headwise.cli.using import add_decoding, check_decoding, check_run, make_translator


def translate(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = CommandParser(
        "translate",
        "RUN [INPUT] [--output FILE] [--beam N] ...",
        "Translate text, one sentence a line, with a trained run. Empty lines stay empty.",
        "With --n_best, lines read: number of the sentence from 0 ||| translation ||| score.",
    )
    parser.add_place("RUN", "directory that headwise train made")
    parser.add_place("INPUT", "text file, plain or .gz; - or left out: standard input", default="-")
    parser.add_option(
        "output", str, "file to write when all is translated (default: standard output)", "FILE", short="o"
    )
    add_decoding(parser)
    parser.add_option("n_best", int, "write the N best translations of each sentence, with scores", "N")
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    folder, n_best = Path(given["run"]), given.get("n_best")
    check_decoding(given)
    check_run(folder)
    window = {"window": 1} if is_terminal(given["input"]) else {}  # a person wants each answer at once
    with lines_of(given["input"]) as lines:
        from headwise.checkpoint.run import load_translator

        translator = make_translator(load_translator(folder), given)
        if n_best is None:
            out = translator.stream(lines, **window)
        else:
            out = (
                f"{number} ||| {translation.text} ||| {translation.score:.4f}"
                for number, found in enumerate(translator.stream_n_best(lines, n_best, **window))
                for translation in found
            )
        write_lines(given.get("output", "-"), out)
    return 0
