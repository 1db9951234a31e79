"""The user's model comes back exactly as it was: modes, values, gradients, random state, switches."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Generator
from typing import Any

import torch
from torch import nn

COPIED_BYTES = 400 * 2**20  # above this a model's values are watched rather than copied


@contextlib.contextmanager
def untouched(model: nn.Module, optimizer: Any = None) -> Generator[None]:
    """Restore everything that examining could change, whatever happens inside."""
    modes = [(module, module.training) for module in model.modules()]
    tensors = [*model.parameters(), *model.buffers()]
    grads = [(p, p.grad, None if p.grad is None else p.grad.detach().clone()) for p in model.parameters()]
    needs = [(p, p.requires_grad) for p in model.parameters()]
    size = sum(t.numel() * t.element_size() for t in tensors)
    saved = [(t, t.detach().clone() if size <= COPIED_BYTES else None, t._version) for t in tensors]
    state = _random_state()
    dtype = torch.get_default_dtype()
    enabled = torch.is_grad_enabled()
    fast = torch.backends.mha.get_fastpath_enabled()
    groups = (
        [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups] if optimizer else []
    )
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(enabled)
        torch.backends.mha.set_fastpath_enabled(fast)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        for module, training in modes:
            module.training = training
        with torch.no_grad():
            for tensor, copy, version in saved:
                if copy is not None and tensor._version != version:
                    tensor.copy_(copy)
        for p, grad, copy in grads:
            p.grad = grad
            if grad is not None and copy is not None and not torch.equal(grad, copy):
                grad.copy_(copy)
        for p, needed in needs:
            if p.requires_grad != needed:
                p.requires_grad_(needed)
        for group, kept in zip(optimizer.param_groups if optimizer else [], groups, strict=True):
            group.update(kept)
        _restore_random(state)


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
