"""Write files so that a reader, or a crash at any moment, meets the old content or the new, never half."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

from headwise.errors import StorageError


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file beside `path`, make it durable, then rename it over `path`.

    The rename is the moment of truth (POSIX rename is atomic); the file and then its directory are
    fsynced, so that after a power cut the name points at complete content. A link stays a link: the
    file that it names is replaced. What is no file (a pipe, /dev/null) is written straight into.

    Errors: StorageError naming the path and the system's reason (disk full, permission); the old
    file is untouched and nothing is left beside it.
    """
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.writing")
    try:
        if _is_stream(path):
            write(path)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.unlink(missing_ok=True)  # of a killed process
        beside.touch()
        mode = beside.stat().st_mode
        write(beside)
        beside.chmod(mode)  # what umask allows: a library may have been stricter
        _sync(beside)
        os.replace(beside, target)
        _sync(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first failure is the one worth telling
            beside.unlink(missing_ok=True)
        # safetensors reports a full disk as its own exception type, with the system's words in it
        if isinstance(error, OSError) or type(error).__module__.startswith("safetensors"):
            reason = getattr(error, "strerror", None) or str(error)
            raise StorageError(
                f"cannot write {path}: {reason}; free space or choose another directory"
            ) from error
        raise


def write_text_atomically(path: Path, text: str) -> None:
    """Write UTF-8 text atomically: see write_atomically."""
    write_atomically(path, lambda beside: beside.write_text(text, encoding="utf-8", newline="\n"))


def _is_stream(path: Path) -> bool:
    """Whether something stands there that takes bytes and is no file: a pipe, a terminal, /dev/null.

    Errors: OSError where nobody can tell, as for links in a circle.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
