"""A pass that leaves no trace: random states, modes, buffers, attributes, autocast's cache are put back."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.doctor.state import State

DEEPEST = 3  # objects within objects that a model keeps: a cache, its layers, their lists
PLAIN = (str, bytes, int, float, bool, complex, type(None), Tensor, nn.Module, torch.dtype, torch.device)


@contextmanager
def quiet(model: nn.Module) -> Generator[None]:
    """Run the model within in evaluation mode and without gradients; afterwards it is what it was.

    Its weights are not copied: no forward pass of a sane model writes to them.
    """
    modules = list(model.modules())
    modes = [(module, module.training) for module in modules]
    put_back = [random_states(), _objects(modules)]
    cached = torch.is_autocast_cache_enabled()
    # weights that autocast casts without gradients would be found in its cache by the pass that needs them
    torch.set_autocast_cache_enabled(False)
    for module in modules:
        module.training = False
    try:
        with torch.no_grad(), State(model).kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for module, mode in modes:
            module.training = mode
        torch.set_autocast_cache_enabled(cached)
        for restore in put_back:
            restore()


def random_states() -> Callable[[], None]:
    """The random states of torch (every device in use), Python and numpy; the result puts them back."""
    own, python = torch.get_rng_state(), random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    numpy: Any = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy is not None else None

    def restore() -> None:
        torch.set_rng_state(own)
        random.setstate(python)
        if cuda:
            torch.cuda.set_rng_state_all(cuda)
        if numpy is not None:
            numpy.random.set_state(drawn)

    return restore


def _objects(modules: Iterable[nn.Module]) -> Callable[[], None]:
    """What objects of the user's own classes hold that a model keeps (caches, meters), and its generators."""
    seen: set[int] = set()
    restores: list[Callable[[], None]] = []

    def keep(value: Any, depth: int) -> None:
        if isinstance(value, PLAIN) or id(value) in seen or depth > DEEPEST or callable(value):
            return
        seen.add(id(value))
        if isinstance(value, (torch.Generator, random.Random)):
            restores.append(_generator(value))
        elif isinstance(value, dict):
            known = cast("dict[Any, Any]", value)
            if depth > 1:
                restores.append(_holder(known, dict(known)))
            for each in list(known.values()):
                keep(each, depth + 1)
        elif isinstance(value, (list, tuple, set, frozenset)):
            held = cast("list[Any]", value)
            if depth > 1 and isinstance(value, list):
                restores.append(_list(held, list(held)))
            for each in list(held)[:1000]:
                keep(each, depth + 1)
        elif hasattr(value, "__dict__") and not isinstance(value, type(sys)):
            own = cast("dict[str, Any]", vars(value))
            restores.append(_holder(own, dict(own)))
            for each in list(own.values()):
                if isinstance(each, Tensor) and not isinstance(each, nn.Parameter):
                    restores.append(_tensor(each))
                keep(each, depth + 1)

    for module in modules:
        for value in list(vars(module).values()):
            keep(value, 1)

    def restore() -> None:
        for each in restores:
            each()

    return restore


def _generator(value: torch.Generator | random.Random) -> Callable[[], None]:
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: cast("None", value.set_state(state))
    held = value.getstate()
    return lambda: value.setstate(held)


def _holder(now: dict[Any, Any], was: dict[Any, Any]) -> Callable[[], None]:
    def restore() -> None:
        if len(now) != len(was) or any(now.get(name, now) is not value for name, value in was.items()):
            now.clear()
            now.update(was)

    return restore


def _list(now: list[Any], was: list[Any]) -> Callable[[], None]:
    def restore() -> None:
        if len(now) != len(was) or any(a is not b for a, b in zip(now, was, strict=True)):
            now[:] = was

    return restore


def _tensor(value: Tensor) -> Callable[[], None]:
    version, was = value._version, value.detach().clone()  # pyright: ignore[reportPrivateUsage]

    def restore() -> None:
        if value._version != version:  # pyright: ignore[reportPrivateUsage]
            with torch.no_grad():
                value.copy_(was)

    return restore
