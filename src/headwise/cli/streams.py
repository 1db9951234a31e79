"""Lines in and lines out: standard input and output or files, in bounded memory."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwise.errors import DataError, StorageError
from headwise.files import write_atomically

# One line without an end may not fill the memory.
LONGEST_LINE = 1_000_000


def is_terminal(name: str) -> bool:
    """Whether the input is a person typing."""
    return name == "-" and sys.stdin.isatty()


@contextmanager
def lines_of(name: str) -> Generator[Iterator[str], None, None]:
    """The lines of a file (plain or gzip), or of standard input for '-', read as they are asked for.

    Lines end at line feed alone, like those of training text.

    Errors: DataError, now or while reading, naming the file and the line.
    """
    if name == "-":
        yield _decoded(sys.stdin.buffer.readline, "standard input")
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 only opening is tried here
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot read {name}: {reason}; name a text file, or - for standard input") from error
    with file:
        is_packed = file.peek(2)[:2] == b"\x1f\x8b"
        yield _decoded(gzip.GzipFile(fileobj=file).readline if is_packed else file.readline, name)


def _decoded(readline: Callable[[int], bytes], name: str) -> Iterator[str]:
    number = 0
    while True:
        try:
            line = readline(LONGEST_LINE)
        except (EOFError, zlib.error, OSError) as error:
            raise DataError(f"cannot read {name} after line {number}: {error}") from error
        if not line:
            return
        number += 1
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise DataError(f"{name}: line {number} must be shorter than {LONGEST_LINE:,} bytes; is it text?")
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name} must be UTF-8: line {number}, byte {error.start + 1} is 0x{line[error.start]:02x}"
            ) from error


def write_lines(name: str, write: Callable[[Callable[[str], None]], None]) -> None:
    """Let `write` put lines, to standard output for '-', or to a file that appears when all are written.

    Errors: StorageError for a file that cannot be written.
    """
    if name == "-":
        write(_putter(sys.stdout.buffer.write, sys.stdout.buffer.flush))
        return
    path = Path(name)
    if path.is_dir():
        raise StorageError(f"cannot write {name}: it is a directory; name a file")

    def fill(beside: Path) -> None:
        with beside.open("wb") as file:
            write(_putter(file.write, file.flush))

    write_atomically(path, fill)


def _putter(write: Callable[[bytes], object], flush: Callable[[], object]) -> Callable[[str], None]:
    def put(line: str) -> None:
        write(line.encode("utf-8", "replace") + b"\n")
        flush()  # whoever reads sees each line as soon as it is there

    return put
