"""`headwise.watch`: statistics of a model while anyone's loop trains it, which they do not change."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import torch
from torch import nn

from headwise.errors import ConfigError
from headwise.see.watch.sample import Sample
from headwise.see.watch.watcher import Watch


def watch(
    model: nn.Module,
    optimizer: Any = None,
    every: SupportsIndex = 50,
    *,
    report: str | Path | None = None,
    board: Any = None,
    live: bool | None = None,
    budget: float | None = 0.03,
    say: Callable[[str], None] | None = None,
    step: SupportsIndex = 0,
    history: Sequence[Sample] = (),
) -> Watch:
    """Watch a model train: `with headwise.watch(model, optimizer) as watch:` around the loop.

    every: a step in so many is measured, and the first; the others are only counted, and their gradients
    looked at for NaN. optimizer: whose steps count; left out, the first that holds weights of the model.
    report: an HTML file, written now and then and at the end. board: a SummaryWriter of TensorBoard, or a
    directory for one. live: a panel on the terminal; left out, where standard error is one.
    budget: the share of the time that measuring may take: a step that would go beyond it is not measured, so
    that very short steps are measured less often; None measures every one.
    say: what is unusual goes there, a line each; left out, to standard error.
    step, history: steps already taken, and what was measured in them, of a training that goes on.

    Law: weights, gradients, buffers, moments and random states end as they would without, bit by bit.
    Errors: ConfigError for arguments that cannot work; StorageError for a report that cannot be written.
    """
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"model must be a torch.nn.Module: got {type(model).__name__}; watch the module itself"
        )
    if any(isinstance(module, torch.jit.ScriptModule) for module in model.modules()):
        raise ConfigError(
            "model must be a module of Python: got one that torch.jit has compiled; "
            "watch the module that it was made from"
        )
    counts = _count("every", every, 1, "50 is usual"), _count("step", step, 0, "0 is usual")
    if budget is not None and (not isinstance(budget, (int, float)) or not 0 < budget <= 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"budget must be a share of the time above 0, at most 1: got {budget}; 0.03 is usual"
        )
    if report is not None and not isinstance(report, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"report must be a file's name: got {type(report).__name__}; report.html is usual")
    if say is not None and not callable(say):  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigError(f"say must be a function of a line: got {type(say).__name__}; print is one")
    if optimizer is not None and not hasattr(optimizer, "step"):
        raise ConfigError(
            f"optimizer must be an optimizer: got {type(optimizer).__name__}; give one, or none"
        )
    return Watch(
        model, optimizer, counts[0], report=report, board=board, live=live, budget=budget, say=say,
        step=counts[1], history=history,
    )  # fmt: skip


def _count(name: str, value: Any, least: int, usual: str) -> int:
    """A whole number, numpy's too. Errors: ConfigError."""
    try:
        number = operator.index(value) if not isinstance(value, bool) else least - 1
    except TypeError:
        number = least - 1
    if number < least:
        raise ConfigError(f"{name} must be a number of steps, {least} or more: got {value!r}; {usual}")
    return number
