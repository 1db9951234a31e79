"""Texts and their classes out of CSV, TSV or JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from headwise.config import LabelledConfig, expanded
from headwise.data.parallel import stream_lines
from headwise.errors import DataError

_LONGEST = 1_000_000  # characters of one field
_REMEDY = "name the columns with data.labelled.text and data.labelled.label"


@dataclass(frozen=True)
class Labelled:
    """Aligned texts and names of classes."""

    texts: list[str]
    labels: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Labelled:
        """These rows."""
        return Labelled([self.texts[row] for row in rows], [self.labels[row] for row in rows])


def read_labelled(path: Path, text: str, label: str, remedy: str = _REMEDY) -> Labelled:
    """Every example of a file, by the names of its columns or keys.

    Numbers and true or false are classes too, as they are written.
    remedy: what to do where the file has no such column.

    Errors: DataError naming the file and the line for what cannot be read, a column that is missing or
    there twice, an empty text or class, and a kind of file that its name does not tell.
    """
    with stream_lines(path, "a .csv, .tsv or .jsonl file, plain or .gz") as lines:
        kind = path.name.lower().removesuffix(".gz").rpartition(".")[2]
        match kind:
            case "csv":
                rows = _table(lines, path, ",", (text, label))
            case "tsv":
                rows = _table(lines, path, "\t", (text, label))
            case "jsonl" | "ndjson":
                rows = _objects(lines, path)
            case _:
                raise DataError(
                    f"{path} must be .csv, .tsv or .jsonl (or .gz of one): got {path.name}; rename it"
                )
        found = Labelled([], [])
        for line, row in rows:
            values = [_value(row, name, path, line, remedy) for name in (text, label)]
            found.texts.append(values[0])
            found.labels.append(values[1])
    if not found.texts:
        raise DataError(f"{path} must hold examples: got none; give a text and a class in each row")
    return found


def split_by_class(labels: Sequence[str], share: float, seed: int, what: str) -> tuple[list[int], list[int]]:
    """Rows to learn from and rows to keep, of each class about `share` of them, at least one of both.

    Errors: DataError for a class of a single example.
    """
    generator = np.random.default_rng(seed)
    learnt: list[int] = []
    kept: list[int] = []
    rows_of: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows_of.setdefault(label, []).append(row)
    for name, rows in sorted(rows_of.items()):
        if len(rows) < 2:
            raise DataError(
                f"each class needs two examples, one to learn from and one {what}: {_brief(name)} has 1; "
                "add examples or take it out"
            )
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        order: list[int] = generator.permutation(rows).tolist()
        kept += order[:count]
        learnt += order[count:]
    return sorted(learnt), sorted(kept)


def load_labelled(
    config: LabelledConfig, warn: Callable[[str], None]
) -> tuple[Labelled, Labelled, tuple[str, ...]]:
    """Training part, validation part, names of the classes in order.

    Errors: DataError as read_labelled, for fewer than two classes, and for a validation class that
    nothing is learnt of.
    """
    train = read_labelled(_find(config, config.train, "train"), config.text, config.label)
    if config.validation is None:
        learnt, kept = split_by_class(train.labels, config.validation_share, config.seed, "to validate on")
        train, validation = train.take(learnt), train.take(kept)
    else:
        validation = read_labelled(_find(config, config.validation, "validation"), config.text, config.label)
    classes = tuple(sorted(set(train.labels)))
    if len(classes) < 2:
        raise DataError(
            f"there must be two classes or more: got {_brief(train.labels[0])} alone; is data.labelled.label "
            f"({config.label!r}) the right column?"
        )
    strange = sorted(set(validation.labels) - set(classes))
    if strange:
        raise DataError(
            "every class of the validation file must occur in the training file: got "
            f"{', '.join(name[:60] for name in strange[:5])}; correct the names or add examples"
        )
    repeated = len(set(validation.texts) & set(train.texts))
    if repeated:
        what = "validation text is also a training text"
        warn(f"1 {what}" if repeated == 1 else f"{repeated} validation texts are also training texts")
    return train, validation, classes


def _find(config: LabelledConfig, name: str, part: str) -> Path:
    path = expanded(config.folder) / expanded(name)
    if not path.exists():
        raise DataError(
            f"no file {path}: data.labelled.folder says where the examples are (got {config.folder}), "
            f"data.labelled.{part} how their file is called"
        )
    return path


def _table(
    lines: Iterator[str], path: Path, separator: str, columns: tuple[str, str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows under a header, each with its first line; a quoted field may hold separators and line ends."""
    csv.field_size_limit(_LONGEST)
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    start = 1
    try:
        header = next(reader, None)
        if header is None:
            return
        for name in columns:
            if header.count(name) > 1:
                raise DataError(
                    f"{path}: a column must have a name of its own: got {header.count(name)} called "
                    f"{_brief(name)}; rename or drop the others"
                )
        start = reader.line_num + 1
        for row in reader:
            if row and len(row) != len(header):
                raise DataError(
                    f"{path}: line {start} must have {len(header)} fields as the header has: got "
                    f"{len(row)}; quote fields that hold {separator!r}"
                )
            if row:
                yield start, dict(zip(header, row, strict=True))
            start = reader.line_num + 1
    except csv.Error as error:
        kind = "CSV" if separator == "," else "TSV"
        raise DataError(f"{path}: line {start} is no {kind} row: {_reason(error)}; correct it") from None


def _reason(error: csv.Error) -> str:
    """What is wrong with a row, without the library's advice to programmers."""
    said = str(error)
    if "new-line character" in said:
        return "it holds a carriage return where no line ends"
    return "a quote that opens a field is never closed" if said == "unexpected end of data" else said


def _objects(lines: Iterator[str], path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            # numbers as they are written: 1.10 stays 1.10
            row: object = json.loads(line, parse_int=str, parse_float=str, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: line {number} is no JSON: {error}; correct it") from None
        if not isinstance(row, dict):
            raise DataError(
                f"{path}: line {number} must be an object with a text and a class: got {line[:40]!r}"
            )
        yield number, cast("dict[str, Any]", row)


def _value(row: dict[str, Any], name: str, path: Path, line: int, remedy: str) -> str:
    if name not in row:
        names = ", ".join(map(_brief, list(row)[:8])) or "nothing"
        raise DataError(f"{path}: line {line} has no {name!r}: it has {names}; {remedy}")
    value = row[name]
    if isinstance(value, bool):
        value = json.dumps(value)
    if not isinstance(value, str) or not value.strip():
        raise DataError(
            f"{path}: line {line}: {name!r} must be text: got {_brief(value)}; fill it in or drop the line"
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise DataError(
            f"{path}: line {line}: {name!r} must be text: got half a character (\\ud800 to \\udfff) in "
            f"{value[:40]!r}; correct the escape"
        )
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _brief(value: object) -> str:
    """A value as it may stand in a message, however long it is."""
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
