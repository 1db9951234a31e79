"""headwise classify RUN: lines of text, or pictures, in; their classes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.cli.arguments import CommandParser
from headwise.cli.streams import check_output, check_picture, is_terminal, lines_of, write_lines
from headwise.cli.using import check_run, warn
from headwise.errors import ConfigError, DataError, RunError

if TYPE_CHECKING:
    from headwise.checkpoint.run import ImageRun, TextRun
    from headwise.evaluate.classes import ClassScores

TEST = "test"


def classify(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = CommandParser(
        "classify",
        "RUN [INPUT] [--output FILE] | RUN --evaluate FILE [--picture FILE.png]",
        "Name the class of each line of text with a trained run, and how probable it is: class, tab, "
        "probability. For a run of pictures each line names a file; INPUT may be a picture itself. Empty "
        "lines of text stay empty.",
        "With --evaluate nothing is named: accuracy, macro-F1 and the confusion matrix are printed.",
    )
    parser.add_place("RUN", "directory that headwise train made")
    parser.add_place("INPUT", "text file, plain or .gz; - or left out: standard input", default="-")
    parser.add_option(
        "output", str, "file to write when all is named (default: standard output)", "FILE", short="o"
    )
    parser.add_option(
        "evaluate",
        str,
        "measure on this .csv, .tsv or .jsonl, whose columns have the run's names; for a run of pictures: "
        f"{TEST}, the part that training never looked at",
        "FILE",
    )
    parser.add_option("picture", str, "with --evaluate: draw the confusion matrix", "FILE.png")
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    _check(given)
    folder = Path(given["run"])
    check_run(folder)
    if "picture" in given:
        from headwise.see.fonts import require_matplotlib

        require_matplotlib("drawing a confusion matrix")
    return _measure(folder, given) if "evaluate" in given else _name(folder, given)


def _check(given: dict[str, Any]) -> None:
    """Refuse what does not go together before a model is loaded."""
    if "evaluate" in given and (given["input"] != "-" or "output" in given):
        other = "--output" if "output" in given else "INPUT"
        raise ConfigError(f"--evaluate and {other} exclude each other: give one of them")
    if "picture" in given:
        if "evaluate" not in given:
            raise ConfigError("--picture draws what --evaluate measures: add --evaluate FILE or leave it out")
        check_picture("--picture", given["picture"], "confusion.png")
        check_output(given["picture"])
    if given.get("output", "-") != "-":
        check_output(given["output"])


def _load(folder: Path) -> TextRun | ImageRun:
    from headwise.checkpoint.run import ImageRun, TextRun, load_run

    run = load_run(folder)
    if isinstance(run, ImageRun) or (isinstance(run, TextRun) and run.classes):
        return run
    raise RunError(
        f"{folder} does not name classes: it was trained on data.kind {run.config.data.kind}; headwise "
        "classify takes a run of data.kind labelled or images"
    )


def _name(folder: Path, given: dict[str, Any]) -> int:
    from headwise.checkpoint.run import ImageRun
    from headwise.data.images import SUFFIXES
    from headwise.decode.classify import WINDOW, PictureNamer

    name = given["input"]
    window = 1 if is_terminal(name) else WINDOW  # a person wants each answer at once
    if Path(name).suffix.lower() in SUFFIXES:
        run = _load(folder)
        if not isinstance(run, ImageRun):
            raise DataError(f"{folder} reads text: got the picture {name}; name a text file")
        found = PictureNamer(run.model).stream([name])
        write_lines(given.get("output", "-"), _lines(found, run.classes))
        return 0
    with lines_of(name) as lines:
        run = _load(folder)
        if isinstance(run, ImageRun):
            found = PictureNamer(run.model).stream(lines, window)
            write_lines(given.get("output", "-"), _lines(found, run.classes))
        else:
            namer = _text_namer(run)
            write_lines(given.get("output", "-"), _lines(namer.stream(lines, window), run.classes))
            _warn_of_cuts(namer.cut, run)
    return 0


def _lines(found: Iterator[Any], classes: Sequence[str]) -> Iterator[str]:
    # a class may hold a tab or a line end, which would look like two fields or two lines
    names = [" ".join(name.split()) for name in classes]
    for one in found:
        yield "" if one is None else f"{names[one.place]}\t{one.probability:.4f}"


def _text_namer(run: TextRun) -> Any:
    from headwise.decode.classify import TextNamer
    from headwise.model.text_encoder import TextClassifier

    assert isinstance(run.model, TextClassifier)
    return TextNamer(run.model, run.tokenizer, run.config.data.labelled.max_length)


def _warn_of_cuts(count: int, run: TextRun) -> None:
    if count:
        longest = run.config.data.labelled.max_length
        warn(f"{count} {'text was' if count == 1 else 'texts were'} cut: over {longest} tokens")


def _measure(folder: Path, given: dict[str, Any]) -> int:
    from headwise.checkpoint.run import ImageRun

    name, run = given["evaluate"], _load(folder)
    scores = _of_pictures(folder, run, name) if isinstance(run, ImageRun) else _of_texts(run, Path(name))
    count = int(scores.confusion.sum())
    print(f"examples  {count:,}")
    print(f"accuracy  {scores.accuracy:.4f}")
    print(f"macro-F1  {scores.macro_f1:.4f}\n")
    _print_table(scores)
    if "picture" in given:
        from headwise.see.confusion import draw_confusion

        title = (
            f"{count:,} examples of {name}: accuracy {scores.accuracy:.1%}, macro-F1 {scores.macro_f1:.1%}"
        )
        notice = draw_confusion(scores.confusion, scores.classes, Path(given["picture"]), title)
        if notice:
            warn(notice)
        print(f"\nconfusion matrix: {given['picture']}")
    return 0


def _of_texts(run: TextRun, path: Path) -> ClassScores:
    from headwise.cli.progress import tracked
    from headwise.data.labelled import read_labelled
    from headwise.evaluate.classes import ClassScores

    columns = run.config.data.labelled
    remedy = f"the run expects the columns {columns.text!r} and {columns.label!r}: rename those of the file"
    examples = read_labelled(path, columns.text, columns.label, remedy)
    place = {name: index for index, name in enumerate(run.classes)}
    strange = sorted(set(examples.labels) - set(place))
    if strange:
        raise DataError(
            f"every class of {path} must be one that the run has learnt: got {', '.join(strange[:5])}; it "
            f"has {', '.join(run.classes[:8])}"
        )
    namer = _text_namer(run)
    found = list(tracked(namer.stream(examples.texts), len(examples), "classifying"))
    _warn_of_cuts(namer.cut, run)
    return ClassScores.of(run.classes, [place[label] for label in examples.labels], [n.place for n in found])


def _of_pictures(folder: Path, run: ImageRun, name: str) -> ClassScores:
    from headwise.checkpoint.run import RunFiles
    from headwise.checkpoint.weights import load_tensors
    from headwise.data.images import load_pictures
    from headwise.train.images import measure

    if name != TEST:
        raise ConfigError(
            f"--evaluate of a run of pictures must be {TEST}, the part that it has kept: got {name}"
        )
    parts = load_pictures(run.config.data.images, run.config.model.patches)
    if parts.classes != run.classes:
        raise DataError(
            f"the pictures of {run.config.data.images.source} have other classes than the run: got "
            f"{', '.join(parts.classes[:8])}, it has {', '.join(run.classes[:8])}; restore them"
        )
    state = RunFiles(folder).training
    if state.exists() and load_tensors(state)[1].get("data") != parts.fingerprint():
        warn(
            f"the pictures of {run.config.data.images.source} are not those that {folder} was trained on: "
            f"some that it has learnt may now be in the {TEST} part; restore them"
        )
    return measure(run.model, parts.test, parts.classes, 64).scores


def _print_table(scores: ClassScores) -> None:
    """The confusion matrix and each class's F1: rich on a terminal, plain columns elsewhere."""
    from rich.console import Console
    from rich.table import Table

    names = [" ".join(name.split()) for name in scores.classes]
    header = ["true \\ named", *names, "F1"]
    rows = [
        [name, *map(str, counts), f"{f1:.3f}"]
        for name, counts, f1 in zip(names, scores.confusion.tolist(), scores.f1, strict=True)
    ]
    console = Console()
    if console.is_terminal:
        table = Table(*header)
        for column in table.columns[1:]:
            column.justify = "right"
        for place, row in enumerate(rows):
            row[place + 1] = f"[bold]{row[place + 1]}[/bold]"
            table.add_row(*row)
        console.print(table)
        return
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        first, *others = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join([row[0].ljust(len(first)), *others]))
