"""A run small enough to train within a second, and what of its end must be the same bits."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import headwise
from headwise.checkpoint.run import RunFiles
from headwise.checkpoint.settings import read_config
from headwise.checkpoint.weights import load_tensors
from headwise.config import (
    DataConfig,
    DatesConfig,
    ImagesConfig,
    LabelledConfig,
    ModelConfig,
    PatchConfig,
    RunConfig,
    TextConfig,
    TrainConfig,
)
from headwise.train.progress import View

# of processes that import this file
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(Path(headwise.__file__).parent.parent), str(Path(__file__).parent)]),
    "OMP_NUM_THREADS": "1",
}
TIMES = ("seconds", "tokens_per_second")


def tiny(run: Path, train_size: int = 64, **train: Any) -> RunConfig:
    """One layer each, 16 wide, on a few dates; keywords go to TrainConfig."""
    settings: dict[str, Any] = {
        "max_steps": 6,
        "batch_tokens": 256,
        "warmup_steps": 4,
        "learning_rate": 3e-3,
        "validate_every": 3,
        "save_every": 2,
        "watch_every": 0,  # tests/train/test_watching.py has it
        "log_every": 2,
        "average_last": 2,
        "threads": 1,
        "samples": 0,
    }
    return RunConfig(
        run=str(run),
        model=ModelConfig(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1),
        data=DataConfig(
            vocab_size=300, dates=DatesConfig(train_size=train_size, validation_size=8, test_size=8)
        ),
        train=TrainConfig(**(settings | train)),
    )


def with_model(config: RunConfig, **model: Any) -> RunConfig:
    """The same run of another model."""
    return replace(config, model=replace(config.model, **model))


OTHER_KINDS = ("language", "masked", "labelled", "images")
TEXT = "the cat sat on the mat, the dog lay on the rug; both slept in the s\u00fcdwing.\n"


def tiny_kind(kind: str, run: Path, **train: Any) -> RunConfig:
    """A run of another kind than translation; its data are written beside the run's directory."""
    folder = run.parent / f"{run.name}-data"
    folder.mkdir(parents=True, exist_ok=True)
    layers: dict[str, Any] = {"num_encoder_layers": 1, "num_decoder_layers": 0, "max_length": 24}
    base = tiny(run, **{"batch_tokens": 96, "samples": 1, **train})
    if kind in ("language", "masked"):
        (folder / "text.txt").write_text(TEXT * 12, encoding="utf-8")
        text = TextConfig(folder=str(folder), files=("text.txt",), window=8, masked_share=0.3)
        data = DataConfig(kind="text", text=text)
        if kind == "language":
            layers |= {"num_encoder_layers": 0, "num_decoder_layers": 1}
    elif kind == "labelled":
        words = TEXT.replace(",", "").split()
        rows = [f"{' '.join(words[n % 9 : n % 9 + 4])},{'odd' if n % 2 else 'even'}" for n in range(30)]
        (folder / "train.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
        labelled = LabelledConfig(folder=str(folder), max_length=24)
        data = DataConfig(kind="labelled", vocab_size=300, labelled=labelled)
    else:
        labels = np.arange(36) % 3
        images = np.random.default_rng(1).integers(0, 256, (36, 4, 4), dtype=np.uint8)
        np.savez(folder / "pictures.npz", images=images, labels=labels)
        data = DataConfig(kind="images", images=ImagesConfig(source=str(folder / "pictures.npz"), shift=1))
        layers["patches"] = PatchConfig(height=4, width=4, size=2, channels=1)
    return replace(base, model=replace(base.model, **layers), data=data)


def silent() -> View:
    """Shows nothing."""
    return View(Console(file=io.StringIO()))


class Crash(BaseException):
    """Not an Exception: nothing may catch it on its way."""


class CrashAfter(View):
    """Raises after an optimizer step: nothing of what follows in the loop happens."""

    def __init__(self, step: int) -> None:
        super().__init__(Console(file=io.StringIO()))
        self._step = step

    def advance(self, step: int, loss: float, rate: float, tokens_per_second: float) -> None:
        if step == self._step:
            raise Crash


def metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without times and speeds."""
    lines = [json.loads(line) for line in RunFiles(folder).metrics.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def end(folder: Path) -> dict[str, Any]:
    """Everything that must not depend on how often a run was stopped, bit by bit."""
    files = RunFiles(folder)
    tensors, about = load_tensors(files.training)
    del about["progress"]["metrics_bytes"]  # counts the digits of times
    present = sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if "tensorboard" not in p.parts)
    return {
        "files": present,
        "config": replace(read_config(files.config), run="moved"),
        "tokenizer": files.tokenizer.read_bytes() if files.tokenizer.exists() else b"",
        "classes": files.classes.read_bytes() if files.classes.exists() else b"",
        "tokens": {p.name: p.read_bytes() for p in files.tokens.glob("*")},
        "model": files.model.read_bytes(),
        "checkpoints": {p.name: p.read_bytes() for p in files.checkpoints.glob("*")},
        "metrics": metrics(folder),
        "about": about,
        "tensors": {name: tensor.numpy().tobytes() for name, tensor in tensors.items()},
    }
