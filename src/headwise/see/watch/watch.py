"""`headwise.watch`: statistics of a model while anyone's loop trains it, which they do not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from headwise.errors import ConfigError
from headwise.see.watch.sample import Sample
from headwise.see.watch.watcher import Watch


def watch(
    model: nn.Module,
    optimizer: Any = None,
    every: int = 50,
    *,
    report: str | Path | None = None,
    board: Any = None,
    live: bool | None = None,
    budget: float | None = 0.03,
    say: Callable[[str], None] | None = None,
    step: int = 0,
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
    if type(every) is not int or every < 1:
        raise ConfigError(f"every must be a number of steps, 1 or more: got {every!r}; 50 is usual")
    if budget is not None and not 0 < budget <= 1:
        raise ConfigError(
            f"budget must be a share of the time above 0, at most 1: got {budget}; 0.03 is usual"
        )
    return Watch(
        model, optimizer, every, report=report, board=board, live=live, budget=budget, say=say, step=step,
        history=history,
    )  # fmt: skip
