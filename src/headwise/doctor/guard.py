"""Run a stranger's code: prints go to standard error, there is a time limit, errors are told in one line."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress

from headwise.doctor.places import place, visible
from headwise.doctor.written import whose
from headwise.errors import DataError, HeadwiseError

LONGEST = 10_000_000.0  # seconds; the system's timer takes no more


class _TooLong(BaseException):
    """Not an Exception: the user's `except Exception` must not hold it up."""


@contextmanager
def guarded(what: str, seconds: float | None = None) -> Generator[None]:
    """Let the user's code run inside; what goes wrong there is one DataError with the user's line.

    what: begins the message, such as 'my_model.py cannot be loaded'. seconds: the limit, None for none.
    KeyboardInterrupt and MemoryError pass, and what headwise raises on purpose.
    Errors: DataError.
    """
    try:
        with talking_to_stderr(), _within(seconds):
            yield
    except (HeadwiseError, KeyboardInterrupt, MemoryError):
        raise
    except _TooLong as error:
        raise DataError(
            f"{what}: stopped after {seconds:g} s{_at(error)}; put training under "
            "if __name__ == '__main__':, or raise --load-timeout"
        ) from None
    except SystemExit as error:
        raise DataError(
            f"{what}: it calls sys.exit({error.code!r}){_at(error)}; put that under "
            "if __name__ == '__main__':"
        ) from None
    except BaseException as error:
        if user_line(error.__traceback__) is None and not isinstance(error, SyntaxError | ImportError):
            raise  # a bug of ours must not be told as the user's
        raise DataError(f"{what}: {told(error)}") from error


@contextmanager
def running(what: str) -> Generator[None]:
    """Let the user's model run inside, without a limit; errors pass, as they belong to whoever called it.

    Errors: DataError where the user's code calls sys.exit: the command must not end there.
    """
    with talking_to_stderr():
        try:
            yield
        except SystemExit as error:
            raise DataError(f"{what}: it calls sys.exit({error.code!r}) when it runs{_at(error)}") from None


def told(error: BaseException) -> str:
    """An exception of the user's code in one line: 'ValueError: bad width, at my_model.py:12 in build'."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        name, where = type(error).__name__, place(error.filename, error.lineno)
        return f"{name}: {visible(error.msg)}, at {where}"
    message = " ".join(str(error).split())
    message = message if len(message) <= 300 else f"{message[:297]}..."
    said = f"{type(error).__name__}: {visible(message)}" if message else type(error).__name__
    return said + _at(error)


def user_line(trace: types.TracebackType | None) -> tuple[str, int, str] | None:
    """File, line and function of the innermost frame of the user's; of a library's where there is none."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(trace)]
    for owner in ("user", "library"):
        for code, line in reversed(frames):
            if whose(code.co_filename) == owner:
                return code.co_filename, line, code.co_qualname
    return None


def _at(error: BaseException) -> str:
    found = user_line(error.__traceback__)
    if found is None:
        return ""
    file, line, function = found
    return f", at {place(file, line)}" + ("" if function == "<module>" else f" in {function}")


@contextmanager
def talking_to_stderr() -> Generator[None]:
    """Send everything printed inside to standard error, also what C code and child processes print."""
    _flush()
    saved = _duplicate_stdout()
    try:
        with redirect_stderr(sys.stderr), redirect_stdout(sys.stderr):  # both are restored if replaced inside
            yield
    finally:
        _flush()
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)


def _duplicate_stdout() -> int | None:
    """Keep the real standard output aside and put standard error in its place; None where it is closed."""
    try:
        saved = os.dup(1)
    except OSError:
        return None
    try:
        os.dup2(2, 1)
    except OSError:  # standard error is closed: what is printed goes nowhere
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    return saved


def _flush() -> None:
    """Let no buffer carry text across the border: Python's streams and C's."""
    for stream in (sys.stdout, sys.__stdout__, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()  # pyright: ignore[reportOptionalMemberAccess]
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)


@contextmanager
def _within(seconds: float | None) -> Generator[None]:
    """Raise _TooLong in this thread when the time is up: by the timer signal, or from a watching thread."""
    if seconds is None:
        yield
        return
    has_signals = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    with (_by_signal if has_signals else _by_thread)(min(seconds, LONGEST)):
        yield


@contextmanager
def _by_signal(seconds: float) -> Generator[None]:
    def stop(*_: object) -> None:
        raise _TooLong

    began = time.monotonic()
    handler = signal.signal(signal.SIGALRM, stop)
    # again and again: a bare `except:` in a loop swallows the first
    before, interval = signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if before:  # somebody else's limit goes on
            left = max(before - (time.monotonic() - began), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left, interval)


@contextmanager
def _by_thread(seconds: float) -> Generator[None]:
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc
    me = ctypes.c_ulong(threading.get_ident())
    lock, over, thrown = threading.Lock(), threading.Event(), threading.Event()

    def watch() -> None:
        wait = seconds
        while not over.wait(wait):
            with lock:
                if not over.is_set():
                    thrown.set()
                    throw(me, ctypes.py_object(_TooLong))
            wait = 0.5

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        # What was thrown must arrive. Taken back, it leaves the interpreter believing that something
        # is pending, and Python 3.11 then turns on the spot in the first function it traces.
        while not over.is_set():
            try:
                with lock:
                    over.set()
                if thrown.is_set():
                    throw(me, ctypes.py_object(_TooLong))
                    while True:
                        time.sleep(0)
            except _TooLong:
                pass
        watcher.join()
