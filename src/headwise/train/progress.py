"""What a person sees of training: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text


class View:
    """Shows training on standard error, so that standard output stays free for results."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._total = 0
        self._began = 0.0
        self._done_before = 0
        self._unit = "tok"

    @property
    def is_live(self) -> bool:
        """Whether a bar can be drawn here."""
        return self._console.is_terminal

    def line(self, text: str) -> None:
        """Print a line above the bar."""
        self._print(text)

    def warn(self, text: str) -> None:
        """Print a warning above the bar."""
        self._print("warning: ", "yellow", text)

    @contextmanager
    def bar(self, total: int, done: int, unit: str = "tok") -> Generator[None]:
        """Show how far training is while the block runs; unit: what is counted, for the speed."""
        self._total, self._done_before, self._began = total, done, time.monotonic()
        self._unit = unit
        if not self.is_live:
            yield
            return
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=self._console,
            expand=True,
        )
        try:
            with self._bar:
                self._task = self._bar.add_task("train", total=total, completed=done, numbers="")
                yield
        finally:
            self._bar = None

    def advance(self, step: int, loss: float, rate: float, speed: float) -> None:
        """Move the bar; loss in nats a target."""
        if self._bar is not None and self._task is not None:
            numbers = f"loss {loss:.3f}  lr {rate:.2e}  {speed:,.0f} {self._unit}/s"
            self._bar.update(self._task, completed=step, numbers=numbers)

    def logged(self, step: int, loss: float, rate: float, speed: float) -> None:
        """The same as a plain line where there is no bar."""
        if not self.is_live:
            took = time.monotonic() - self._began
            left = took / max(step - self._done_before, 1) * (self._total - step)
            self.line(
                f"step {step}/{self._total}  loss {loss:.3f}  lr {rate:.2e}  "
                f"{speed:,.0f} {self._unit}/s  {_clock(left)} left"
            )

    def _print(self, text: str, style: str = "", rest: str = "") -> None:
        # as Text: Rich would read markup and :emoji: into a string, and samples may hold either
        self._console.print(Text.assemble((text, style), rest), soft_wrap=True)


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
