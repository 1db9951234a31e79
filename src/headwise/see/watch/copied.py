"""A copy of a model to look at: what a pass writes is written there, and the model that trains is not run.

Weights that are trained are shared where they are large, since a pass reads them only; everything else that a
pass may write to (buffers, caches, counters, generators, frozen weights that count something) is copied.
"""

from __future__ import annotations

import copy
import threading
import types
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

SMALL = 64 * 2**20  # bytes of trained weights up to which they are copied too: a pass may clip or renormalise
DEEPEST = 6  # objects within objects that a model keeps
PLAIN = (str, bytes, int, float, bool, complex, type(None), type, types.FunctionType, types.ModuleType)
LOCKS = (type(threading.Lock()), type(threading.RLock()))

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class CannotCopy(Exception):
    """Something that a model holds has no copy."""


def copied(
    model: nn.Module, run: Callable[..., Any], arguments: Arguments
) -> tuple[nn.Module, Callable[..., Any], Arguments]:
    """The model, what runs (the model, a part of it, a method), and the arguments, as copies of one another.

    Errors: CannotCopy, where a part has no copy or `run` is a function that has the model in it.
    """
    if not isinstance(getattr(run, "__self__", run), nn.Module):
        raise CannotCopy(f"{getattr(run, '__name__', type(run).__name__)} is no method of the model")
    memo: dict[int, Any] = {}
    for parameter in _shared(model):
        memo[id(parameter)] = nn.Parameter(parameter.detach())  # the same numbers, its own gradient
    grads = [(p, p.grad) for p in model.parameters() if p.grad is not None]
    _prepare(model, memo)
    _prepare(arguments, memo)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for p, _ in grads:
                p.grad = None
            for module in reversed(list(model.modules())):
                inner = getattr(module, "_orig_mod", None)
                if isinstance(inner, nn.Module):  # of a compiled part, what is compiled
                    memo[id(module)] = copy.deepcopy(inner, memo)
            twin = copy.deepcopy(model, memo)
            ran = copy.deepcopy(run, memo)
            given = copy.deepcopy(arguments, memo)
    except Exception as error:
        raise CannotCopy(f"{type(error).__name__}: {str(error)[:120]}") from error
    finally:
        for p, grad in grads:
            p.grad = grad
    for module in twin.modules():
        _without_hooks(module)
    return twin, ran, given


@contextmanager
def same_classes(model: nn.Module) -> Generator[None]:
    """Plain values that the model's classes hold are afterwards as they were."""
    every = {kind for module in model.modules() for kind in type(module).__mro__}
    own = [kind for kind in every if not kind.__module__.startswith(("torch", "builtins", "abc", "typing"))]
    held = [(kind, {k: v for k, v in vars(kind).items() if _is_plain(k, v)}) for kind in own]
    try:
        yield
    finally:
        for kind, was in held:
            now = {k: v for k, v in vars(kind).items() if _is_plain(k, v)}
            for name in now.keys() - was.keys():
                delattr(kind, name)
            for name, value in was.items():
                if name not in now or now[name] is not value:
                    setattr(kind, name, value)


def _is_plain(name: str, value: Any) -> bool:
    return not name.startswith("__") and isinstance(value, (int, float, str, bool, type(None), tuple))


def _shared(model: nn.Module) -> list[nn.Parameter]:
    """Weights that the copy has in common with the model: those that are trained, where they are large."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if sum(p.numel() * p.element_size() for p in trained) <= SMALL:
        return []
    written = {
        id(p)
        for module in model.modules()
        if getattr(module, "max_norm", None) is not None
        for p in module.parameters(recurse=False)
    }
    return [p for p in trained if id(p) not in written and type(p) is nn.Parameter]


def _prepare(tree: Any, memo: dict[int, Any]) -> None:
    """Note copies of what deepcopy refuses: results of autograd, generators of torch, locks."""
    seen: set[int] = set()
    todo: list[tuple[Any, int]] = [(tree, 0)]
    while todo:
        value, depth = todo.pop()
        if isinstance(value, PLAIN) or id(value) in seen or depth > DEEPEST:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            if not value.is_leaf:
                memo[id(value)] = value.detach().clone().requires_grad_(value.requires_grad)
        elif isinstance(value, torch.Generator):
            twin = torch.Generator(value.device)
            twin.set_state(value.get_state())
            memo[id(value)] = twin
        elif isinstance(value, LOCKS):
            memo[id(value)] = value
        elif isinstance(value, nn.Module):
            todo += [(each, 0) for each in vars(value).values()]
        else:
            todo += [(each, depth + 1) for each in _within(value)]


def _within(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from cast("dict[Any, Any]", value).values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from cast("list[Any]", value)
    elif hasattr(value, "__dict__"):
        yield from list(cast("dict[str, Any]", vars(value)).values())


def _without_hooks(module: nn.Module) -> None:
    """Hooks after a pass see it (and keep what they see elsewhere); those before it may make its weights."""
    hooks = cast("dict[int, Any]", vars(module)["_forward_hooks"])
    for number, hook in list(hooks.items()):
        made = getattr(hook, "__module__", None) or type(hook).__module__
        if not str(made).startswith("torch."):
            del hooks[number]
