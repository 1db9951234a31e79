"""Everything that a training run must remember to go on as if it had never stopped."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.checkpoint.weights import fill_model, load_tensors, model_tensors, save_tensors
from headwise.errors import RunError
from headwise.train.optim import optimizer_tensors, restore_optimizer


@dataclass
class Progress:
    """Where training stands; all of it numbers, so that JSON holds it exactly.

    step: optimizer steps taken.        epoch, batch: the next batch to train on.
    loss_sum, tokens: since the last logged line.
    total_tokens: target tokens learned from since the first step.
    metrics_bytes: length of metrics.jsonl that belongs to this state.
    validated: steps whose weights lie in checkpoints/.
    best, best_step: best value of what is watched, and where; waited: validations since.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    loss_sum: float = 0.0
    tokens: int = 0
    total_tokens: int = 0
    metrics_bytes: int = 0
    validated: list[int] = field(default_factory=list[int])
    best: float | None = None
    best_step: int = 0
    waited: int = 0
    has_stopped: bool = False


def save_state(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, data: str
) -> None:
    """Write weights, moments, random state and progress into one file, atomically."""
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in model_tensors(model).items()}
    tensors |= {f"optimizer.{name}": tensor for name, tensor in optimizer_tensors(model, optimizer)}
    tensors["random"] = torch.get_rng_state()
    save_tensors(path, tensors, {"kind": "training", "data": data, "progress": dataclasses.asdict(progress)})


def load_state(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, data: str) -> Progress:
    """Put everything back where `save_state` found it.

    Errors: RunError when the file is damaged, or the text is no longer the one trained on.
    """
    tensors, about = load_tensors(path)
    if about.get("kind") != "training" or "random" not in tensors:
        raise RunError(f"{path} holds no training state; restore it, or remove the run and train again")
    if about.get("data") != data:
        raise RunError(
            f"the training text is not the one that {path.parent} began with (its fingerprint was "
            f"{about.get('data')}, is {data}); restore the text or choose another --run"
        )
    try:
        values: Any = about["progress"]
        progress = Progress(**values)
    except (KeyError, TypeError) as error:
        raise RunError(f"{path} has a damaged header: {error}; restore it or train again") from None
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        head, _, rest = name.partition(".")
        parts.setdefault(head, {})[rest] = tensor
    fill_model(model, parts["model"], path)
    restore_optimizer(model, optimizer, parts["optimizer"])
    torch.set_rng_state(tensors["random"])
    return progress
