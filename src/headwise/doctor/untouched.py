"""The user's model comes back exactly as it was: modes, values, gradients, random state, switches."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.errors import ConfigError

COPIED_BYTES = 400 * 2**20  # above this the weights of a model are not kept: no run of ours writes to them

_HELD = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks")


@contextlib.contextmanager
def untouched(model: nn.Module, optimizer: Any = None) -> Generator[None]:
    """Restore everything that examining could change, whatever happens inside.

    Runs are on copies, or on a large model itself without writing to its weights; this is for what a function
    of the user's reaches past them (a step that takes the model from where it was made, a loss that trains).
    """
    held = _held(model)
    values, buffers = _values(model.parameters()), _values(model.buffers())
    grads = [(p, p.grad) for p in model.parameters()]
    slopes = _values(grad for _, grad in grads if grad is not None)
    needs = [(p, p.requires_grad) for p in model.parameters()]
    state = _random_state()
    steps = _optimizer_state(optimizer)
    dtype = torch.get_default_dtype()
    enabled = torch.is_grad_enabled()
    fast = torch.backends.mha.get_fastpath_enabled()
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(enabled)
        torch.backends.mha.set_fastpath_enabled(fast)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        held()
        for p, needed in needs:
            if p.requires_grad != needed:
                p.requires_grad_(needed)
        values()
        buffers()
        for p, grad in grads:
            p.grad = grad
        slopes()
        steps()
        _restore_random(state)


def _held(model: nn.Module) -> Callable[[], None]:
    """Modes, and which parameters, buffers, children and hooks each module has; the result puts them back."""
    modes = [(module, module.training) for module in model.modules()]
    if any("_parameters" not in vars(module) for module, _ in modes):
        raise ConfigError(
            "the model must be a module of Python: got one that torch.jit has traced; "
            "give the module that it was traced from"
        )
    names = [(module, name, dict(vars(module)[name])) for module, _ in modes for name in _HELD]

    def restore() -> None:
        for module, training in modes:
            module.training = training
        for module, name, was in names:
            now = vars(module)[name]
            if list(now.items()) != list(was.items()):
                now.clear()
                now.update(was)

    return restore


def _values(tensors: Iterable[Tensor]) -> Callable[[], None]:
    """What tensors hold, bit by bit, up to COPIED_BYTES in all; the result puts it back."""
    every = list(tensors)
    size = sum(t.numel() * t.element_size() for t in every)
    saved = [(t, t.detach().clone()) for t in every] if size <= COPIED_BYTES else []

    def restore() -> None:
        with torch.no_grad():
            for tensor, was in saved:
                if not same_bits(tensor, was):
                    tensor.copy_(was)

    return restore


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal, NaN and the sign of zero included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.layout is not torch.strided or a.is_quantized:
        return torch.equal(a, b)
    one, two = (t.detach().contiguous().view(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(one, two)


def _optimizer_state(optimizer: Any) -> Callable[[], None]:
    """Rates, moments and whatever else an optimizer (or a wrapper of one) has; the result puts it back."""
    if optimizer is None:
        return lambda: None
    own = cast("dict[str, Any]", vars(optimizer))
    attributes = dict(own)
    inner = [
        _optimizer_state(each) for each in attributes.values() if isinstance(each, torch.optim.Optimizer)
    ]
    listed: list[dict[str, Any]] = attributes.get("param_groups", [])
    groups = [(group, dict(group)) for group in listed]
    moments: dict[Any, dict[str, Any]] = attributes.get("state", {})
    state = {p: dict(held) for p, held in moments.items()}
    values = _values(t for held in state.values() for t in held.values() if isinstance(t, Tensor))

    def restore() -> None:
        own.clear()
        own.update(attributes)
        for group, was in groups:
            group.clear()
            group.update(was)
        listed[:] = [group for group, _ in groups]
        moments.clear()
        moments.update(state)
        values()
        for each in inner:
            each()

    return restore


def _random_state() -> dict[str, Any]:
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        import numpy as np

        state["numpy"] = np.random.get_state()
    return state


def _restore_random(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        import numpy as np

        np.random.set_state(state["numpy"])


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Generator[None]:
    """Tensors that the model makes itself (masks, positions) come in the dtype it is run in."""
    was = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(was)


def seed_everything(seed: int = 0) -> None:
    """Every run starts from the same random numbers, so that a difference is never chance."""
    torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
    random.seed(seed)
    if "numpy" in sys.modules:
        import numpy as np

        np.random.seed(seed)
