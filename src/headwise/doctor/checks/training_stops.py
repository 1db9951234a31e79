"""Take the first training step on a copy: tell where it stops, and what shapes had reached the loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from headwise.doctor.adapt import flatten, logits_of
from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.shapes_told import frames_of, on_the_line, own_of, short

LONGEST = 90  # characters of code that are shown
STEPS = {
    "loss": "the loss stops",
    "backward": "the backward pass of the loss stops",
    "step": "the optimizer's step stops",
}


@check(
    id="HW002",
    title="The loss, or the step after it, stops with an exception",
    why="The model runs but cannot be trained so, and nothing that needs its loss can be examined.",
    fix="Make the shapes and types that reach the loss agree with what it takes: [N, V] or [B, V, T] scores "
    "beside [N] or [B, T] labels for a cross-entropy.",
    needs={"run"},
)
def training_stops(probe: Probe) -> Iterator[Found | Tried]:
    if probe.subject.loss is None or probe.subject.targets is None:
        raise NotApplicable("no loss with targets was given")
    stop = probe.stop
    if stop is None:
        yield Tried("the loss of one batch" + ("" if probe.is_large else ", forwards and back"))
        return
    frames = frames_of(stop.error)
    own = own_of(frames)
    code, operands = on_the_line(own[-1]) if own else ("", [])
    if len(code) > LONGEST:
        code = code[: LONGEST - 4] + " ..."
    message = (str(stop.error).strip().splitlines() or [""])[0][:200]
    took = _shapes([("the output", logits_of(stop.output)), *_named("the targets", stop.targets)])
    names = _shapes(list(operands)) if stop.phase == "loss" else ""
    place = own[-1].place if own else None
    yield Found(
        f"{STEPS[stop.phase]} with {type(stop.error).__name__}: {message}"
        + (f"; the line is {code}" if code else "")
        + (f", where {names}" if names else "")
        + f"; what reached the loss: {took}",
        at=place,
        related=tuple(related([f.place for f in reversed(own[:-1])], "called from here", place)),
        severity=_severity(stop.phase, stop.error, bool(own)),
        fix=_fix(stop.phase, message),
    )


def _severity(phase: str, error: Exception, is_inside: bool) -> Any:
    """A call that does not fit the function's parameters says how the loss was handed over, not how it is.

    A backward pass may fail for what a machine lacks.
    """
    if phase == "loss" and isinstance(error, TypeError) and not is_inside:
        return "note"
    return "warning" if phase == "backward" else None


def _fix(phase: str, message: str) -> str:
    if phase == "step" and "sparse" in message:
        return (
            "Give the sparse embeddings to SparseAdam and the rest to Adam, or make them with sparse=False."
        )
    if phase == "backward":
        return "Read the exception: most often a tensor that the gradient needs was overwritten in place."
    if phase == "step":
        return "Read the exception: the optimizer refuses these parameters or their gradients."
    return ""


def _named(name: str, held: Any) -> list[tuple[str, Tensor | None]]:
    if isinstance(held, dict):
        return [(f"{name}[{key!r}]", t) for key, each in held.items() for t in flatten(each)]  # pyright: ignore
    found = flatten(held)
    return [(name if len(found) == 1 else f"{name}[{place}]", t) for place, t in enumerate(found)]


def _shapes(named: list[Any]) -> str:
    return ", ".join(
        f"{name} {list(t.shape)} {short(t.dtype)}" for name, t in named[:4] if isinstance(t, Tensor)
    )
