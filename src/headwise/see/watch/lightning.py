"""The watch as a callback of Lightning: `Trainer(callbacks=[WatchCallback(report="report.html")])`.

Either package will do, `lightning` and `pytorch_lightning`: the callback is one of every package's installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from headwise.errors import MissingExtra
from headwise.see.watch.callback import WatchedTraining


def _bases() -> tuple[type, ...]:
    """The Callback classes of the packages installed. Errors: MissingExtra without any."""
    found: list[Any] = []
    if find_spec("lightning") is not None:
        from lightning.pytorch import Callback

        found.append(Callback)
    if find_spec("pytorch_lightning") is not None:
        from pytorch_lightning import Callback  # pyright: ignore[reportMissingImports]

        found.append(Callback)
    if not found:
        raise MissingExtra("lightning", "watching a Lightning training", "lightning")
    return tuple(dict.fromkeys(found))


class WatchCallback(WatchedTraining, *_bases()):  # pyright: ignore[reportUntypedBaseClass, reportGeneralTypeIssues]
    """Watches `Trainer.fit` from its first training batch to its last; nothing of what is trained changes."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """After the sanity check, before the first batch."""
        self.begin(pl_module, int(trainer.global_step), is_first_process=trainer.is_global_zero)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the report. Errors: StorageError."""
        self.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Take the hooks away, whatever ended the training."""
        self.end(is_failing=True)
