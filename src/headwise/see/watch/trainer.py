"""The watch as a callback of transformers: `Trainer(..., callbacks=[WatchCallback(report="r.html")])`."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from headwise.errors import MissingExtra
from headwise.see.watch.callback import WatchedTraining

if importlib.util.find_spec("transformers") is None:
    raise MissingExtra("transformers", "watching a transformers Trainer", "transformers")

if TYPE_CHECKING:
    Base: Any = object
else:
    from transformers import TrainerCallback as Base


class WatchCallback(WatchedTraining, Base):
    """Watches from the first step of `Trainer.train` to the last. Nothing of what is trained changes."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before the first batch."""
        first = bool(state.is_world_process_zero)
        self.begin(kwargs["model"], int(state.global_step), is_first_process=first)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write the report. Errors: StorageError."""
        self.end()
