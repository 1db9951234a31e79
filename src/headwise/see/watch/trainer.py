"""The watch as a callback of transformers: `Trainer(..., callbacks=[WatchCallback(report="r.html")])`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import MissingExtra
from headwise.see.watch.watch import watch
from headwise.see.watch.watcher import Watch

if importlib.util.find_spec("transformers") is None:
    raise MissingExtra("transformers", "watching a transformers Trainer", "transformers")

if TYPE_CHECKING:
    Base: Any = object
else:
    from transformers import TrainerCallback as Base


class WatchCallback(Base):
    """Watches from the first step of `Trainer.train` to the last; keywords are those of `watch`.

    watch: what was seen, once training has begun. Nothing of what is trained changes. In a training of many
    processes the first one watches.
    """

    def __init__(
        self,
        every: int = 50,
        *,
        report: str | Path | None = None,
        board: Any = None,
        live: bool = False,
        **more: Any,
    ) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self._settings: dict[str, Any] = {
            "every": every,
            "report": report,
            "board": board,
            "live": live,
            **more,
        }
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before the first batch."""
        if self.watch is not None:
            self.watch.stop(is_failing=True)  # an earlier training that an exception ended
        if state.is_world_process_zero:
            settings: dict[str, Any] = {**self._settings, "step": int(state.global_step)}
            self.watch = watch(kwargs["model"], **settings)
            self.watch.start()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the report. Errors: StorageError."""
        if self.watch is not None:
            self.watch.stop()
