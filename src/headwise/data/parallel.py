"""Aligned text files: line n of one translates line n of the other; plain or gzip, UTF-8."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from headwise.data.pairs import Pairs
from headwise.errors import DataError

MAX_CHARACTERS = 10_000
# Bytes. One line without an end may not fill the memory.
LONGEST_LINE = 1_000_000
_TEXT = "a text file, plain or .gz"
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def read_parallel(source: Path, target: Path) -> tuple[Pairs, list[str]]:
    """The usable pairs of two aligned files, and a counted warning for each kind of pair left out.

    Left out: pairs with a blank side, and pairs with a side of more than MAX_CHARACTERS characters.

    Errors: DataError as read_aligned, and when no pair is left.
    """
    sources, targets = read_aligned(source, target)
    kept: list[tuple[str, str]] = []
    blank = overlong = 0
    for pair in zip(sources, targets, strict=True):
        if not all(side.strip() for side in pair):
            blank += 1
        elif any(len(side) > MAX_CHARACTERS for side in pair):
            overlong += 1
        else:
            kept.append(pair)
    if not kept:
        raise DataError(
            f"{source} and {target} must hold at least one usable pair: got {blank} with an empty side and "
            f"{overlong} over {MAX_CHARACTERS:,} characters; give one sentence a line"
        )
    where = f"of {len(sources)} pairs of {source.name} and {target.name} left out"
    warnings = [
        f"{count} {where}: {why}"
        for count, why in ((blank, "one side is empty"), (overlong, f"over {MAX_CHARACTERS:,} characters"))
        if count
    ]
    return Pairs([pair[0] for pair in kept], [pair[1] for pair in kept]), warnings


def read_aligned(source: Path, target: Path) -> tuple[list[str], list[str]]:
    """Every line of two aligned files.

    Errors: DataError as read_lines, and for unequal line counts.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise DataError(
            f"line n of one file must translate line n of the other: got {len(sources)} lines in {source} "
            f"and {len(targets)} in {target}; align them again"
        )
    return sources, targets


def read_lines(path: Path) -> list[str]:
    """Every line of a text file, empty ones too.

    Errors: DataError as stream_lines, and for an empty file.
    """
    with stream_lines(path) as stream:
        lines = list(stream)
    if not lines:
        raise DataError(f"{path} must hold text: got an empty file; give one sentence a line")
    return lines


@contextmanager
def stream_lines(path: Path, wanted: str = _TEXT) -> Generator[Iterator[str]]:
    """The lines of a text file, read as they are asked for; gzip is told by its content, not by the name.

    wanted: what a message asks for where the file cannot be opened.

    Errors: DataError naming the file when it is missing, a directory or not readable; while reading,
    for a damaged gzip and as decoded_lines.
    """
    with _opened(path, wanted) as file:
        yield decoded_lines(file.readline, str(path))


def stream_text(path: Path) -> Iterator[str]:
    """The text of a file in parts of about LONGEST_LINE bytes, however long its lines; plain or gzip.

    A carriage return before a line feed and a byte order mark are dropped; all else is kept.

    Errors: DataError as stream_lines, but lines may be of any length.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    number, column = 1, 0  # the line that the next part goes on, and its bytes so far
    held, is_first = "", True  # held: a carriage return, until the next part tells whether it ends a line
    with _opened(path) as file:
        while True:
            part = _next(file.read, str(path), number)
            raw = decoder.getstate()[0] + part
            try:
                text = decoder.decode(part, final=not part)
            except UnicodeDecodeError as error:
                above, end, line = raw[: error.start].rpartition(b"\n")
                raise _not_utf8(
                    str(path),
                    number + (above + end).count(b"\n"),
                    len(line) + (0 if end else column),
                    raw[error.start],
                ) from error
            if text and is_first:
                text, is_first = text.removeprefix("\ufeff"), False
            text = (held + text).replace("\r\n", "\n")
            held = "\r" if part and text.endswith("\r") else ""
            if text := text.removesuffix(held):
                yield text
            if not part:
                return
            done = raw[: len(raw) - len(decoder.getstate()[0])]
            column = len(done.rpartition(b"\n")[2]) + (0 if b"\n" in done else column)
            number += done.count(b"\n")


@contextmanager
def _opened(path: Path, wanted: str = _TEXT) -> Generator[BinaryIO]:
    """The bytes of a file, unpacked."""
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot read {path}: {reason}; name {wanted}") from error
    with file:
        is_packed = file.peek(2)[:2] == _GZIP_MAGIC
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if is_packed else file


def decoded_lines(readline: Callable[[int], bytes], name: str) -> Iterator[str]:
    """The lines that `readline`, asked for a number of bytes, brings from what users know as `name`.

    Lines end at line feed alone (a carriage return before it is dropped): other separators such
    as U+2028 occur inside sentences and must not shift the lines. A byte order mark is dropped.

    Errors: DataError naming the line when it is LONGEST_LINE bytes long, is not UTF-8 (with the byte),
    or cannot be read.
    """
    number = 0
    while line := _next(readline, name, number):
        number += 1
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise DataError(
                f"{name}: line {number} must be shorter than {LONGEST_LINE:,} bytes; give one sentence a line"
            )
        if number == 1:
            line = line.removeprefix(_BOM)
            if not line:  # nothing but the mark
                return
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(name, number, error.start, line[error.start]) from error
        yield text.removesuffix("\n").removesuffix("\r")


def _next(read: Callable[[int], bytes], name: str, number: int) -> bytes:
    """What `read` brings next, LONGEST_LINE bytes at most; number: of the last line that came whole."""
    try:
        return read(LONGEST_LINE)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{name} is a damaged gzip file after line {number}: {error}; copy or download it again"
        ) from error
    except OSError as error:
        raise DataError(
            f"cannot read {name} after line {number}: {error.strerror or error}; name a text file"
        ) from error


def _not_utf8(name: str, line: int, place: int, byte: int) -> DataError:
    """place: bytes of the line before the one that is wrong."""
    return DataError(
        f"{name} must be UTF-8: line {line}, byte {place + 1} is 0x{byte:02x}; "
        "convert it, for example with iconv"
    )
