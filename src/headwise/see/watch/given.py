"""What a watch is given: a place for its report, numbers of the loop, a model whose weights lie here."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from headwise.errors import ConfigError, StorageError


def is_sharded(model: nn.Module) -> bool:
    """Do weights lie in parts on several devices? A pass of one process alone would wait for the others."""
    tensor: Any = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    wrapper: Any = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    if wrapper is not None and any(isinstance(module, wrapper) for module in model.modules()):
        return True
    return tensor is not None and any(isinstance(p, tensor) for p in model.parameters())


def number_of(name: str, value: Any) -> Callable[[], float]:
    """How to read a number; a tensor on a device is not waited for until then. Errors: ConfigError."""
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return lambda: float(value.detach())
    if isinstance(value, (int, float)) or (
        type(value).__module__ == "numpy" and getattr(value, "size", 0) == 1
    ):
        try:
            number = float(value)
            return lambda: number
        except (TypeError, ValueError):
            pass
    size: Any = getattr(cast("Any", value), "shape", None)
    shape = "" if size is None else f" of shape {list(size)}"
    raise ConfigError(
        f"watch.log takes numbers: got {type(value).__name__}{shape} for {name}; log its mean or leave it out"
    )


def check_place(report: Path) -> None:
    """Can a report be written there at the end? Errors: StorageError."""
    try:
        if report.exists() and not report.is_file():
            raise StorageError(f"the report must be a file: {report} is not one; name a file, r.html")
        report.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=report.parent):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot write {report}: {reason}; choose another place") from error
