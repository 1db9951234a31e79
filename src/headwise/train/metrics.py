"""What training measures, a JSON object a line; and in TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import warnings
from pathlib import Path
from typing import Any

from headwise.errors import RunError, StorageError


class Metrics:
    """An append-only file whose length a training state can remember.

    Lines written after the state was saved are cut off when a run goes on: it will write them again.
    """

    def __init__(self, path: Path, valid_bytes: int, step: int) -> None:
        try:
            size = path.stat().st_size if path.exists() else 0
            if size < valid_bytes:
                raise RunError(f"{path} is damaged: expected at least {valid_bytes} bytes, got {size}; restore it")
            self._file = path.open("ab")
            self._file.truncate(valid_bytes)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}; choose another --run") from error
        self._path = path
        self.bytes = valid_bytes
        self._board = _tensorboard(path.parent / "tensorboard", step)

    def write(self, step: int, **values: float | int | str) -> None:
        """Add a line; numbers also go to TensorBoard."""
        line = (json.dumps({"step": step, **values}, ensure_ascii=False) + "\n").encode()
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}; free space and start again") from error
        self.bytes += len(line)
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(name, value, step)

    def sync(self) -> None:
        """Make the lines durable: a state that remembers them is about to be."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error.strerror}; free space and start again") from error

    def close(self) -> None:
        """Close the file and the board."""
        try:
            self._file.close()
        except OSError:
            pass  # a full disk was already told by write
        if self._board is not None:
            self._board.close()


def _tensorboard(folder: Path, step: int) -> Any:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its protobuf files warn on newer Pythons
        from torch.utils.tensorboard import SummaryWriter
    # points after the state's step belong to the part that is trained again
    return SummaryWriter(str(folder), purge_step=step + 1)
