"""Run the user's step three times on a copy: as a backward begins, the last step's gradients must be gone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from headwise.doctor.adapt import rebuild
from headwise.doctor.batch import Batch
from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.runner import size_of
from headwise.doctor.trace import user_frames
from headwise.doctor.untouched import seed_everything


@check(
    id="HW704",
    title="Gradients are never set to zero between steps",
    why="Each step adds all earlier gradients: the steps grow, and soon throw the model off.",
    fix="Call optimizer.zero_grad() in every step, before loss.backward().",
    needs={"train_step", "optimizer"},
    explains={"learning-rate-too-high", "cannot-memorise"},
)
def zero_grad_missing(probe: Probe) -> Iterator[Found | Tried]:
    held, lines = _steps(probe)
    if len(held) < 2:
        raise NotApplicable("train_step does not call backward and optimizer.step() in every call")
    left = held[1:]
    if max(left) == 0:
        yield Tried(f"before the backward of {len(left)} later steps every gradient was zero")
        return
    place = lines[0] if lines else None
    yield Found(
        "when the backward of the second step begins, the gradients of the first are still there "
        f"(norm {left[0]:.3g}, 0 where they are cleared), and the new ones are added to them",
        at=place,
        related=tuple(related(lines[1:], "the step is taken here", place)),
    )


def _steps(probe: Probe) -> tuple[list[float], list[Place]]:
    """The gradients' norm as the first backward of each of three steps begins; lines of backward and step."""
    held: list[float] = []
    lines: list[Place] = []
    fresh = True  # no backward since the last step: more than one is gradient accumulation
    given = Batch.given(probe.adapted)
    real: Any = cast("Any", Tensor).backward

    with probe.training_copy() as (model, optimizer):

        def norm() -> float:
            return math.hypot(*(size_of(p.grad, 2) for p in model.parameters() if p.grad is not None))

        def backward(self: Tensor, *args: Any, **kwargs: Any) -> Any:
            nonlocal fresh
            _note(lines)
            if fresh:
                held.append(norm())
                fresh = False
            return real(self, *args, **kwargs)

        def step(*_args: Any, **_kwargs: Any) -> None:
            nonlocal fresh
            _note(lines)
            fresh = True

        optimizer.step = step
        Tensor.backward = backward
        try:
            with torch.enable_grad():
                for _ in range(3):
                    seed_everything()
                    inputs = rebuild(probe.subject.inputs, list(given.leaves))
                    assert probe.subject.train_step is not None
                    probe.subject.train_step(model, optimizer, (inputs, probe.subject.targets))
        finally:
            Tensor.backward = real
    return held, lines


def _note(lines: list[Place]) -> None:
    own = next((frame.place for frame in user_frames() if not frame.library), None)
    if own is not None and own not in lines:
        lines.append(own)
