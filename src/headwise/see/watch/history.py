"""Measured steps as lines of JSON, and back: so that a training that goes on shows all of its curves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from headwise.files import write_text_atomically
from headwise.see.watch.sample import Sample


def write_history(path: Path, history: Iterable[Sample]) -> None:
    """A line for each sample; a number that is not finite becomes null. Errors: StorageError."""
    lines = (json.dumps(_plain(sample.as_dict()), allow_nan=False) for sample in history)
    write_text_atomically(path, "".join(f"{line}\n" for line in lines))


def read_history(path: Path) -> list[Sample]:
    """What write_history wrote; nothing where there is no such file, or one that is damaged: curves alone
    are lost with it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        return [Sample.from_dict(json.loads(line)) for line in lines]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []


def _plain(tree: Any) -> Any:
    if isinstance(tree, float):
        return tree if math.isfinite(tree) else None
    if isinstance(tree, dict):
        return {name: _plain(each) for name, each in cast("dict[str, Any]", tree).items()}
    if isinstance(tree, (list, tuple)):
        return [_plain(each) for each in cast("list[Any]", tree)]
    return tree
