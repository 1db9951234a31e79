"""The watch as a callback of Lightning: `Trainer(callbacks=[WatchCallback(report="report.html")])`.

Either package will do, `lightning` and `pytorch_lightning`: the callback is one of every package's installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headwise.errors import MissingExtra
from headwise.see.watch.watch import watch
from headwise.see.watch.watcher import Watch


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


class WatchCallback(*_bases()):  # pyright: ignore[reportUntypedBaseClass, reportGeneralTypeIssues]
    """Watches from the first training batch of `Trainer.fit` to the last; keywords are those of `watch`.

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

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """After the sanity check, before the first batch."""
        if trainer.is_global_zero:
            settings: dict[str, Any] = {**self._settings, "step": int(trainer.global_step)}
            self.watch = watch(pl_module, **settings)
            self.watch.start()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the report. Errors: StorageError."""
        if self.watch is not None:
            self.watch.stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Take the hooks away, whatever ended the training."""
        if self.watch is not None:
            self.watch.stop(is_failing=True)
