"""What the callbacks of all trainers are: a watch that begins and ends with a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from headwise.see.watch.watch import watch
from headwise.see.watch.watcher import Watch


class WatchedTraining:
    """Keywords are those of `watch`; `watch` is what was seen, once training has begun."""

    def __init__(
        self,
        every: int = 50,
        *,
        report: str | Path | None = None,
        board: Any = None,
        live: bool = False,
        **more: Any,
    ) -> None:
        super().__init__()
        self._settings: dict[str, Any] = {
            "every": every,
            "report": report,
            "board": board,
            "live": live,
            **more,
        }
        self.watch: Watch | None = None

    def begin(self, model: nn.Module, step: int, *, is_first_process: bool) -> None:
        """Watch from here on; of a training of many processes the first one watches."""
        self.end(is_failing=True)  # an earlier training that an exception ended
        if is_first_process:
            settings: dict[str, Any] = {**self._settings, "step": step}
            self.watch = watch(model, **settings)
            self.watch.start()

    def end(self, *, is_failing: bool = False) -> None:
        """Take the hooks away and write the report. Errors: StorageError, unless it is failing already."""
        if self.watch is not None:
            self.watch.stop(is_failing=is_failing)
