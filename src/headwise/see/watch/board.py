"""Curves for TensorBoard: to a SummaryWriter of the user's, or to a directory of its own."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

from headwise.errors import ConfigError, MissingExtra, StorageError
from headwise.see.watch.sample import Sample


class Board:
    """target: a SummaryWriter (anything with add_scalar), a directory, or None for no board.

    Errors: MissingExtra where a directory is named and TensorBoard is not installed; ConfigError.
    """

    def __init__(self, target: Any) -> None:
        self._is_ours = isinstance(target, (str, Path))
        self._writer: Any = _writer(Path(target)) if self._is_ours else target
        if target is not None and not hasattr(self._writer, "add_scalar"):
            raise ConfigError(
                f"board must be a SummaryWriter or a directory: got {type(target).__name__}; name a directory"
            )

    def add(self, sample: Sample) -> None:
        """One point of every curve."""
        if self._writer is not None:
            for name, value in sample.scalars():
                self._writer.add_scalar(name, value, sample.step)

    def close(self) -> None:
        """Make everything durable; a writer of the user's stays open."""
        if self._writer is None:
            return
        if self._is_ours:
            self._writer.close()
        elif hasattr(self._writer, "flush"):
            self._writer.flush()


def _writer(folder: Path) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingExtra("tensorboard", "writing curves for TensorBoard", "tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its protobuf files warn on newer Pythons
        from torch.utils.tensorboard import SummaryWriter
    try:
        return SummaryWriter(str(folder))
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot write {folder}: {reason}; choose another directory") from error
