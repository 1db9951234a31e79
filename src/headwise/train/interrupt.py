"""Ctrl-C as a wish that training grants between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether Ctrl-C was pressed. A plain attribute: a signal handler must not wait for a lock."""

    def __init__(self) -> None:
        self.is_set = False


@contextmanager
def noted_interrupt() -> Generator[Interrupt]:
    """Ctrl-C sets a flag to be read between steps; a second one interrupts at once.

    Outside the main thread, and where SIGINT was ignored from the start (nohup, a script's background
    job), nothing is changed.
    """
    interrupt = Interrupt()
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before in (signal.SIG_IGN, None):
        yield interrupt
        return

    def note(number: int, frame: FrameType | None) -> None:
        if interrupt.is_set:
            raise KeyboardInterrupt
        interrupt.is_set = True

    signal.signal(signal.SIGINT, note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
