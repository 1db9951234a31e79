"""Everything that a training run must remember to go on as if it had never stopped."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

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
            f"the training data or the tokenizer is not the one that {path.parent} began with (the "
            f"fingerprint was {about.get('data')}, is {data}); restore it or choose another --run"
        )
    progress = _progress(about.get("progress"), path)
    random = tensors.pop("random")
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        head, _, rest = name.partition(".")
        # a stranger's name is kept whole, so that the check of the model's names tells it
        parts[head if head in parts else "model"][rest if head in parts else name] = tensor
    if progress.step > 0 and not parts["optimizer"]:
        raise RunError(f"{path} is damaged: it has no optimizer moments; restore it or train again")
    fill_model(model, parts["model"], path)
    restore_optimizer(model, optimizer, parts["optimizer"], path)
    try:
        torch.set_rng_state(random)
    except (RuntimeError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}; restore it or train again") from None
    return progress


_IS_KIND: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int and value >= 0,
    "float": lambda value: type(value) in (int, float) and math.isfinite(value),
    "float | None": lambda value: value is None or _IS_KIND["float"](value),
    "bool": lambda value: type(value) is bool,
    "list[int]": lambda value: (
        isinstance(value, list) and all(map(_IS_KIND["int"], cast("list[Any]", value)))
    ),
}


def _progress(content: object, path: Path) -> Progress:
    """Progress from a header, every field of its type: what JSON gave is not trusted."""
    values = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    known = {item.name: str(item.type) for item in dataclasses.fields(Progress)}
    problems = [f"{name}: missing" for name in known if name not in values]
    problems += [f"{name}: unexpected" for name in values if name not in known]
    problems += [
        f"{name}: expected {kind}, got {values[name]!r}"
        for name, kind in known.items()
        if name in values and not _IS_KIND[kind](values[name])
    ]
    if problems:
        raise RunError(f"{path} has a damaged header: {'; '.join(problems)}; restore it or train again")
    return Progress(**values)
