"""Checkpoints that transformers saved, and copies of them with something changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from checkpoint.foreign.agreement import CASES, foreign, saved


@cache
def original(architecture: str, words: str = "") -> Path:
    """A checkpoint of this class, made once a process: not to be written into."""
    torch.manual_seed(3)
    case = next(c for c in CASES if c.architecture == architecture and words in c.words)
    return saved(foreign(case), Path(mkdtemp()))


def edited(
    folder: Path,
    architecture: str,
    words: str = "",
    *,
    tensors: Callable[[dict[str, Tensor]], object] | None = None,
    without: tuple[str, ...] = (),
    **settings: Any,
) -> Path:
    """A copy with other settings, settings left out, or other tensors (changed in place)."""
    shutil.copytree(original(architecture, words), folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in {**config, **settings}.items() if name not in without}
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is not None:
        held = load_file(folder / "model.safetensors")
        tensors(held)
        save_file(held, folder / "model.safetensors", {"format": "pt"})
    return folder
