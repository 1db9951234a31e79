"""Some dozens of steps on the one batch, on copies: with the user's optimizer, and with a tame one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.doctor.blame import made_places
from headwise.doctor.check import NotApplicable, Place
from headwise.doctor.probe import Probe
from headwise.doctor.sites import is_product, upstream
from headwise.doctor.trace import Value, user_frames
from headwise.doctor.trainer import dense

STEPS, STEPS_LARGE, STEPS_LONG = 40, 8, 120
DEEP = 12  # post-norms on one path: six layers of two sub-layers, to which post-norm is known to train
TAME = 1e-3  # AdamW's usual rate for models of this size; large ones get a third


@dataclass(eq=False)
class Course:
    """One rehearsal: the loss before each step and after the last, each step's rate, who set the rate.

    moved: the largest share of the weights (in norm) that one step changed, after the first two.
    """

    losses: list[float]
    rates: list[float] = field(default_factory=lambda: [])
    set_at: list[Place] = field(default_factory=lambda: [])
    moved: float = 0.0

    @property
    def start(self) -> float:
        return self.losses[0]

    @property
    def end(self) -> float:
        """The mean of the last quarter; inf where the loss stopped being a number."""
        tail = self.losses[-max(1, len(self.losses) // 4) :]
        return sum(tail) / len(tail) if all(math.isfinite(x) for x in tail) else math.inf

    @property
    def best(self) -> float:
        finite = [x for x in self.losses if math.isfinite(x)]
        return min(finite) if finite else math.inf

    @property
    def fell(self) -> float:
        """The share of the first loss that is gone at the end."""
        if not math.isfinite(self.end) or self.start == 0:
            return -math.inf
        return (self.start - self.end) / abs(self.start)


class WatchedGroup(dict[str, Any]):
    """A parameter group that remembers which line of the user's set its learning rate, and to what."""

    def __init__(self, held: dict[str, Any], course: Course) -> None:
        super().__init__(held)
        self.course = course

    def __setitem__(self, key: str, value: Any) -> None:
        if key == "lr":
            frames = [frame.place for frame in user_frames() if not frame.library]
            self.course.set_at[:0] = [place for place in frames[:2] if place not in self.course.set_at]
        super().__setitem__(key, value)


def own(probe: Probe) -> Course:
    """The user's optimizer, as it is."""
    return probe.memo("rehearsal own", lambda: _run(probe, None))


def tame(probe: Probe) -> Course:
    """The control: AdamW at a usual rate, dropout as the model has it."""
    rate = TAME / 3 if probe.is_large else TAME
    return probe.memo("rehearsal tame", lambda: _run(probe, lambda m: _adamw(m, rate)))


def still(probe: Probe) -> Course:
    """The control without dropout."""
    rate = TAME / 3 if probe.is_large else TAME
    return probe.memo("rehearsal still", lambda: _run(probe, lambda m: _adamw(m, rate), quiet=True))


def long(probe: Probe) -> Course:
    """A tame optimizer at three times the rate, without dropout, for longer; deep post-norm is warmed up."""
    warm = max(map(len, norm_after_add(probe))) >= DEEP
    return probe.memo(
        "rehearsal long",
        lambda: _run(probe, lambda m: _adamw(m, 3 * TAME), quiet=True, steps=STEPS_LONG, warm=warm),
    )


def lowered(probe: Probe, factor: float) -> Course:
    """The user's optimizer with every rate, whoever sets it, multiplied by a factor."""
    return probe.memo(f"rehearsal lowered {factor}", lambda: _run(probe, None, factor=factor))


def warmed(probe: Probe) -> Course:
    """The user's optimizer with its rate rising linearly over the rehearsal."""
    return probe.memo("rehearsal warmed", lambda: _run(probe, None, warm=True))


class _DenseAdamW(torch.optim.AdamW):
    """AdamW, which refuses sparse gradients, with those filled up."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = dense(p.grad)
        return cast("Any", super()).step(closure)


def _adamw(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return _DenseAdamW([p for p in model.parameters() if p.requires_grad], lr=rate, weight_decay=0.0)


def _run(
    probe: Probe,
    make: Callable[[nn.Module], torch.optim.Optimizer] | None,
    *,
    factor: float = 1.0,
    warm: bool = False,
    quiet: bool = False,
    steps: int | None = None,
) -> Course:
    course = Course([])
    steps = steps or (STEPS_LARGE if probe.is_large else STEPS)

    def watch(_model: nn.Module, optimizer: Any) -> None:
        inner = _inner(optimizer)
        if not inner.param_groups:
            raise NotApplicable("the optimizer has no parameters")
        if make is None:
            inner.param_groups = [WatchedGroup(group, course) for group in inner.param_groups]
        if probe.is_large:  # all parameters at once would need room for as many again
            for group in optimizer.param_groups:
                if "foreach" in group:
                    group["foreach"] = False
        real = optimizer.step

        def step(*args: Any, **kwargs: Any) -> Any:
            if probe.is_large and factor == 1.0 and not warm:  # no room for a second set of weights
                result = real(*args, **kwargs)
                course.rates.append(max(float(group["lr"]) for group in inner.param_groups))
                return result
            share = factor * ((len(course.rates) + 1) / steps if warm else 1.0)
            return _scaled_step(inner, real, share, course, args, kwargs)

        optimizer.step = step

    course.losses = probe.rehearse(steps, optimizer=make, watch=watch, quiet=quiet)
    return course


def _inner(optimizer: Any) -> Any:
    """The optimizer of torch in a wrapper that sets its rate; anything else is taken as it is."""
    if hasattr(optimizer, "param_groups"):
        return optimizer
    held = cast("dict[str, object]", getattr(optimizer, "__dict__", {})).values()
    found = next((each for each in held if isinstance(each, torch.optim.Optimizer)), None)
    if found is None:
        raise NotApplicable("the optimizer has no groups of parameters")
    return found


def _scaled_step(
    optimizer: Any, real: Callable[..., Any], share: float, course: Course, args: Any, kwargs: Any
) -> Any:
    """One step of which a share is kept: whatever rate the optimizer chooses inside, the move is scaled."""
    held = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    before = [p.detach().clone() for p in held]
    result = real(*args, **kwargs)
    course.rates.append(share * max(float(group["lr"]) for group in optimizer.param_groups))
    with torch.no_grad():
        if share != 1.0:
            for p, was in zip(held, before, strict=True):
                p.copy_(was + share * (p - was))
        shares = [
            float((p - was).norm() / was.norm().clamp(min=1e-12))
            for p, was in zip(held, before, strict=True)
            if p.dim() >= 2
        ]
        if shares and len(course.rates) > 2:
            course.moved = max(course.moved, sorted(shares)[len(shares) // 2])
    return result


def optimizer_line(probe: Probe) -> Place | None:
    """Where the user's optimizer was constructed."""
    if probe.making is None or probe.subject.optimizer is None:
        return None
    return probe.making.optimizer(_inner(probe.subject.optimizer))


def norm_after_add(probe: Probe) -> list[list[str]]:
    """Paths of the norms that read a sum with a residual (post-norm): the main stream's, and the others."""
    main: list[str] = []
    other: list[str] = []
    bit = 1 << probe.main.leaf if probe.main is not None else 0
    for op in probe.base.record.ops:
        if op.name not in {"native_layer_norm", "_fused_rms_norm"}:
            continue
        value = op.inputs[0]
        while value.op is not None and (value.op.moves or value.op.name == "update"):
            value = value.op.inputs[0]
        maker = value.op
        if maker is None or maker.name.rstrip("_") != "add" or len(maker.inputs) != 2:
            continue
        # the norm is post when nothing else reads the sum: a pre-norm leaves the sum on the residual path
        if all(user is op or user.moves for user in value.users):
            (main if value.sources & bit else other).append(op.module)
    return [main, other]


def drawn_at(probe: Probe, value: Value) -> tuple[Place | None, Tensor | None]:
    """The weight of the projection behind a value, and the line that last drew it."""
    for op in upstream(value):
        weights = [_leaf(v) for v in op.inputs] if is_product(op) else []
        found = next((w for w in weights if w is not None and w.trained and w.tensor.dim() >= 2), None)
        if found is not None:
            places = made_places(probe, found)
            return (places[0] if places else None), found.tensor
    return None, None


def _leaf(value: Value) -> Value | None:
    while value.op is not None and value.op.moves:
        value = value.op.inputs[0]
    return value if value.op is None else None
