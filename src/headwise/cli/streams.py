"""Lines in and lines out: standard input and output or files, in bounded memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headwise.data.parallel import decoded_lines, stream_lines
from headwise.errors import ConfigError, DataError, StorageError
from headwise.files import write_atomically


def is_terminal(name: str) -> bool:
    """Whether the input is a person typing."""
    return name == "-" and _has_stdin() and sys.stdin.isatty()


@contextmanager
def lines_of(name: str) -> Generator[Iterator[str]]:
    """The lines of a file as `stream_lines`, or of standard input for '-'.

    Errors: DataError as there, now or while reading, and when standard input is closed.
    """
    if name != "-":
        with stream_lines(Path(name)) as lines:
            yield lines
    elif _has_stdin():
        yield decoded_lines(sys.stdin.buffer.readline, "standard input")
    else:
        raise DataError("standard input is closed: expected text; name a file")


def _has_stdin() -> bool:
    # started with <&- there is none, whatever the annotation says
    return bool(sys.stdin)


def check_output(name: str) -> None:
    """Tell before the work what cannot be written.

    Missing directories are no fault: whoever writes makes them.
    Errors: StorageError for a directory, and for a file inside of what is none.
    """
    path = Path(name)
    if path.is_dir():
        raise StorageError(f"cannot write {name}: it is a directory; name a file")
    above = next(folder for folder in path.parents if folder.exists() or folder == folder.parent)
    if above.exists() and not above.is_dir():
        raise StorageError(f"cannot write {name}: {above} is no directory; name another place")


def check_picture(option: str, name: str, usual: str) -> None:
    """Tell before the work that a picture must be a .png; usual: what to propose where the name says nothing.

    Errors: ConfigError for another ending.
    """
    path = Path(name)
    if path.suffix.lower() != ".png":
        better = path.with_suffix(".png") if path.name else usual
        raise ConfigError(f"{option} must end in .png: got {name or 'nothing'}; {better} would do")


def write_lines(name: str, lines: Iterable[str]) -> None:
    """Write lines as they come, to standard output for '-', or to a file that appears with the last one.

    Errors: StorageError for a file that cannot be written.
    """
    if name == "-":
        _put(lines, sys.stdout.buffer.write, sys.stdout.buffer.flush)
        return
    check_output(name)

    def fill(beside: Path) -> None:
        with beside.open("wb") as file:
            _put(lines, file.write, file.flush)

    write_atomically(Path(name), fill)


def _put(lines: Iterable[str], write: Callable[[bytes], object], flush: Callable[[], object]) -> None:
    for line in lines:
        write(line.encode("utf-8", "replace") + b"\n")
        flush()  # whoever reads sees each line as soon as it is there
