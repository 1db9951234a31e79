"""What training measures, a JSON object a line; and in TensorBoard where it is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

from headwise.errors import RunError, StorageError


class Metrics:
    """An append-only file whose length a training state can remember.

    Lines written after the state was saved are cut off when a run goes on: it will write them again.
    """

    def __init__(self, path: Path, valid_bytes: int, step: int) -> None:
        with _as_storage_error(path):
            size = path.stat().st_size if path.exists() else 0
            if size < valid_bytes:
                raise RunError(
                    f"{path} is damaged: expected at least {valid_bytes} bytes, got {size}; restore it"
                )
            self._file = path.open("ab")
            if size > valid_bytes:
                self._file.truncate(valid_bytes)
        self._path = path
        self.bytes = valid_bytes
        self._board = _tensorboard(path.parent / "tensorboard", step)

    def write(self, step: int, **values: float | int | str) -> None:
        """Add a line; numbers also go to TensorBoard."""
        line = (json.dumps({"step": step, **values}, ensure_ascii=False) + "\n").encode()
        with _as_storage_error(self._path):
            self._file.write(line)
            self._file.flush()
        self.bytes += len(line)
        for name, value in values.items():
            if isinstance(value, int | float):
                self.add_scalar(name, value, step)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """A number for TensorBoard alone."""
        if self._board is not None:
            with _as_storage_error(self._path.parent):
                self._board.add_scalar(name, value, step)

    def sync(self) -> None:
        """Make the lines durable: a state that remembers them is about to be."""
        with _as_storage_error(self._path):
            os.fsync(self._file.fileno())
        if self._board is not None:
            with _as_storage_error(self._path.parent):
                self._board.flush()

    def close(self) -> None:
        """Close the file and the board; what a full disk did was already told by write."""
        with contextlib.suppress(OSError):
            self._file.close()
        if self._board is not None:
            with contextlib.suppress(OSError):
                self._board.close()


@contextlib.contextmanager
def _as_storage_error(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot write {path}: {reason}; free space and start again") from error


def _tensorboard(folder: Path, step: int) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its protobuf files warn on newer Pythons
        from torch.utils.tensorboard import SummaryWriter
    with _as_storage_error(folder):
        # points after the state's step belong to the part that is trained again
        return SummaryWriter(str(folder), purge_step=step + 1)
