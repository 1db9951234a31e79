"""Aligned text files: line n of one translates line n of the other; plain or gzip, UTF-8."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from headwise.data.pairs import Pairs
from headwise.errors import DataError

MAX_CHARACTERS = 10_000
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


def read_parallel(source: Path, target: Path) -> tuple[Pairs, list[str]]:
    """The usable pairs of two aligned files, and a counted warning for each kind of pair left out.

    Left out: pairs with a blank side, and pairs with a side of more than MAX_CHARACTERS characters.

    Errors: DataError as read_lines, for unequal line counts, and when no pair is left.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise DataError(
            f"line n of one file must translate line n of the other: got {len(sources)} lines in {source} "
            f"and {len(targets)} in {target}; align them again"
        )
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


def read_lines(path: Path) -> list[str]:
    """Every line of a text file, empty ones too; gzip is told by its content, not by the name.

    Lines end at line feed alone (a carriage return before it is dropped): other separators such
    as U+2028 occur inside sentences and must not shift the lines. A byte order mark is dropped.

    Errors: DataError naming the file when it is missing, a directory, not readable, empty, a damaged
    gzip, or not UTF-8 (with the line and the byte).
    """
    content = _unpacked(path).removeprefix(_BOM)
    if not content:
        raise DataError(f"{path} must hold text: got an empty file; give one sentence a line")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line_start = content.rfind(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} must be UTF-8: line {content.count(10, 0, error.start) + 1}, "
            f"byte {error.start - line_start + 1} is 0x{content[error.start]:02x}; "
            "convert it, for example with iconv"
        ) from error
    lines = text.removesuffix("\n").split("\n")
    return [line.removesuffix("\r") for line in lines]


def _unpacked(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot read {path}: {reason}; name a text file, plain or .gz") from error
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is a damaged gzip file: {error}; copy or download it again") from error
