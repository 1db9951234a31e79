"""When a step of training happens: torch tells of every optimizer's step, before it and after it.

An optimizer that is given a closure computes the gradients within its step; then "before" is after the
closure's first call. What wraps an optimizer (Lightning's, accelerate's) ends in the step of one of torch's.
"""

from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_TORCHS: str = register_optimizer_step_pre_hook.__code__.co_filename


class Steps:
    """Calls `before(optimizer, loss)` and `after(optimizer)` around the steps that change these parameters.

    optimizer: the only one that counts, where it is given, or what wraps it. loss: what a closure returned.
    saw: called for the step of any optimizer that holds some of these parameters.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        optimizer: Any,
        before: Callable[[Optimizer, Any], None],
        after: Callable[[Optimizer], None],
        saw: Callable[[Optimizer], None] = lambda _: None,
    ) -> None:
        self._saw = saw
        self._ids = {id(p) for p in parameters}
        self._given = optimizer
        self._calls = before, after
        self._owned: weakref.WeakKeyDictionary[Optimizer, bool] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self._outer: types.FrameType | None = None

    def start(self) -> None:
        """Listen from now on."""
        me = weakref.ref(self)  # a watch that nobody holds any more hears nothing

        def pre(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
            steps = me()
            return steps._pre(optimizer, args, kwargs) if steps is not None else None

        def post(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
            steps = me()
            if steps is not None:
                steps._post(optimizer)

        self._handles = [register_optimizer_step_pre_hook(pre), register_optimizer_step_post_hook(post)]

    def stop(self) -> None:
        """Listen no longer."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _pre(self, optimizer: Optimizer, args: Any, kwargs: dict[str, Any]) -> Any:
        if self._is_inner():
            return None
        if self._holds(optimizer):
            self._saw(optimizer)
        if not self._counts(optimizer):
            return None
        self._outer = _stepping()
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._calls[0](optimizer, None)
            return None
        called = False

        def told() -> Any:
            nonlocal called
            loss = closure()
            if not called:
                called = True
                self._calls[0](optimizer, loss)
            return loss

        if "closure" in kwargs:
            return args, {**kwargs, "closure": told}
        return (args[0], told, *args[2:]), kwargs

    def _post(self, optimizer: Optimizer) -> None:
        if self._counts(optimizer) and self._outer is _stepping():
            self._outer = None
            self._calls[1](optimizer)

    def _is_inner(self) -> bool:
        """Is this the step of a class that another's step calls (super().step()), and torch tells of both?

        A step that an exception ended is no longer among the frames.
        """
        if self._outer is None:
            return False
        frame = inspect.currentframe()
        while frame is not None and frame is not self._outer:
            frame = frame.f_back
        return frame is not None

    def _counts(self, optimizer: Optimizer) -> bool:
        if self._given is not None:
            return any(optimizer is each for each in _within(self._given))
        return self._holds(optimizer)

    def _holds(self, optimizer: Optimizer) -> bool:
        if not self._owned.get(optimizer):  # it may be given weights of the model later
            held = (id(p) for group in optimizer.param_groups for p in group["params"])
            self._owned[optimizer] = any(number in self._ids for number in held)
        return self._owned[optimizer]


def _within(optimizer: Any) -> list[Any]:
    """An optimizer and those that it wraps."""
    found: list[Any] = []
    while optimizer is not None and not any(optimizer is each for each in found):
        found.append(optimizer)
        optimizer = getattr(optimizer, "optimizer", None) or getattr(optimizer, "_optimizer", None)
    return found


def scale_of(optimizer: Any) -> float:
    """By how much the gradients are scaled still: a fused optimizer divides them itself."""
    scale = getattr(optimizer, "grad_scale", None)
    return float(scale) if isinstance(scale, Tensor) else 1.0


def is_skipped(optimizer: Any) -> bool:
    """Will the step be skipped, for a scaler has found gradients that overflow and will scale less?"""
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, Tensor) and bool(found)


def _stepping() -> types.FrameType | None:
    """The innermost frame of torch's that is within an optimizer's step: what called the hook."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename != _TORCHS:
        frame = frame.f_back
    return frame
