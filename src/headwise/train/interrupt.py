"""Ctrl-C, or a polite kill, as a wish that training grants between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Whether Ctrl-C was pressed or SIGTERM came.

    A plain attribute: a signal handler must not wait for a lock.
    """

    def __init__(self) -> None:
        self.is_set = False


@contextmanager
def noted_interrupt() -> Generator[Interrupt]:
    """Ctrl-C or SIGTERM sets a flag to be read between steps; a second one interrupts at once.

    Outside the main thread, and for a signal that was ignored from the start (nohup, a script's
    background job), nothing is changed.
    """
    interrupt = Interrupt()

    def note(number: int, frame: FrameType | None) -> None:
        if interrupt.is_set:
            raise KeyboardInterrupt
        interrupt.is_set = True

    before = {number: signal.getsignal(number) for number in SIGNALS}
    is_main = threading.current_thread() is threading.main_thread()
    noted = [n for n in SIGNALS if is_main and before[n] not in (signal.SIG_IGN, None)]
    for number in noted:
        signal.signal(number, note)
    try:
        yield interrupt
    finally:
        for number in noted:
            signal.signal(number, before[number])
