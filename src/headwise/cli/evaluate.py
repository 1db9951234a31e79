"""headwise evaluate RUN: translate a text and compare with its reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_output, write_lines
from headwise.cli.using import add_decoding, check_decoding, check_run, make_translator
from headwise.data.parallel import read_aligned


def evaluate(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = CommandParser(
        "evaluate",
        "RUN --source FILE --target FILE [--lowercase] [--beam N] ...",
        "Translate a text with a trained run and print BLEU and chrF, with sacreBLEU's signatures, "
        "and the share of exact matches.",
    )
    parser.add_place("RUN", "directory that headwise train made")
    parser.add_option("source", str, "text to translate, one sentence a line, plain or .gz", "FILE", True)
    parser.add_option("target", str, "its reference translation, line by line", "FILE", True)
    parser.add_flag("lowercase", "compare without regard to case")
    parser.add_option(
        "tokenize", str, "how BLEU cuts words; zh for Chinese, char for Japanese (default 13a)", "NAME"
    )
    parser.add_option("output", str, "file for the translations", "FILE", short="o")
    add_decoding(parser)
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    folder = Path(given["run"])
    check_decoding(given)
    check_run(folder)
    if "output" in given:
        check_output(given["output"])
    sources, references = read_aligned(Path(given["source"]), Path(given["target"]))
    from headwise.checkpoint.run import load_translator
    from headwise.cli.progress import tracked
    from headwise.evaluate.score import check_tokenizer, score

    tokenize = given.get("tokenize", "13a")
    check_tokenizer(tokenize)  # before the work, not after it
    stream = make_translator(load_translator(folder), given).stream(sources)
    hypotheses = list(tracked(stream, len(sources), "translating"))
    if "output" in given:
        write_lines(given["output"], hypotheses)
    scores = score(hypotheses, references, lowercase=given["lowercase"], tokenize=tokenize)
    print("\n".join(scores.lines()))
    return 0
