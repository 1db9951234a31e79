"""A live panel on the terminal: the latest numbers, and what is unusual; prints of the loop go above it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.panel import Panel as Box
from rich.text import Text

from headwise.see.watch.words import RANK, latest

if TYPE_CHECKING:
    from headwise.see.watch.watcher import Watch

SECONDS = 0.5  # between two drawings
COLOURS = {"error": "bold red", "warning": "yellow", "note": "cyan"}
MOST_FINDINGS = 4


class Panel:
    """Draws a watch on standard error; nothing where that is no terminal."""

    def __init__(self, watch: Watch, console: Console | None = None) -> None:
        self._watch = watch
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._drawn = 0.0

    def start(self) -> None:
        """Draw from now on; another live drawing on the same console has precedence."""
        if not self._console.is_terminal:
            return
        live = Live(self.drawing(), console=self._console, auto_refresh=False, transient=False)
        live.start()
        self._live = live

    def step(self, step: int) -> None:
        """A step was taken."""
        if self._live is not None and time.monotonic() - self._drawn > SECONDS:
            self.show()

    def show(self) -> None:
        """Draw what is known now."""
        if self._live is not None:
            self._drawn = time.monotonic()
            self._live.update(self.drawing(), refresh=True)

    def stop(self) -> None:
        """Draw once more, and leave that on the terminal."""
        if self._live is not None:
            self.show()
            self._live.stop()
            self._live = None

    def drawing(self) -> Box:
        """The panel as it is now."""
        watch = self._watch
        text = Text()
        for line in latest(watch.history[-1]) if watch.history else ("nothing measured yet",):
            text.append(f"{line}\n")
        found = sorted(watch.findings, key=lambda each: RANK[each.severity])
        for each in found[:MOST_FINDINGS]:
            text.append(f"{each.severity}: ", COLOURS[each.severity])
            text.append(f"{each}\n")
        if len(found) > MOST_FINDINGS:
            text.append(f"and {len(found) - MOST_FINDINGS} more in the report\n")
        text.rstrip()
        return Box(text, title=f"headwise watch, step {watch.step:,}", title_align="left")
