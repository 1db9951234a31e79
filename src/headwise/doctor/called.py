"""A plain function as a module: what it works with are its children, and a copy of it works with copies."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

from torch import nn


class Called(nn.Module):
    """A function with the modules and parameters that it reaches: closed over, global, bound or preset."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        plain = isinstance(function, types.FunctionType | types.MethodType | functools.partial)
        reach = cast("object", function if plain else getattr(function, "__dict__", None))  # else an object
        for place, each in enumerate(dict.fromkeys(_held(reach, set()))):
            if isinstance(each, nn.Module):
                self.add_module(f"closed_{place}", each)
            else:
                self.register_parameter(f"closed_{place}", each)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Called:
        # copy.deepcopy takes functions as they are: the copy would still run, and train, the original
        other = Called(_rebound(self.function, memo))
        memo[id(self)] = other
        return other.train(self.training)


def _held(holder: object, seen: set[int]) -> Iterator[nn.Module | nn.Parameter]:
    """The modules and parameters that a function, or what it has at hand, leads to."""
    if id(holder) in seen:
        return
    seen.add(id(holder))
    if isinstance(holder, nn.Module | nn.Parameter):
        yield holder
        return
    for each in _at_hand(holder):
        yield from _held(each, seen)


def _at_hand(holder: object) -> list[object]:
    if isinstance(holder, types.FunctionType):
        cells = [cell for cell in holder.__closure__ or () if not _is_empty(cell)]
        known = holder.__globals__
        named = [known[name] for name in _names(holder.__code__) if name in known]
        preset = [*(holder.__defaults__ or ()), *(holder.__kwdefaults__ or {}).values()]
        return [*(cell.cell_contents for cell in cells), *named, *preset]
    if isinstance(holder, types.MethodType):
        owner = holder.__self__
        return [owner] if isinstance(owner, nn.Module) else list(getattr(owner, "__dict__", {}).values())
    if isinstance(holder, functools.partial):
        preset = cast("functools.partial[Any]", holder)
        return [preset.func, *preset.args, *preset.keywords.values()]
    if isinstance(holder, dict):
        return list(cast("dict[object, object]", holder).values())
    if isinstance(holder, list | tuple):
        return list(cast("list[object]", holder))
    return []


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that a function looks up, those in its comprehensions and inner functions among them."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _names(inner)


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:  # a name that is not bound yet
        return True


def _rebound(holder: Any, memo: dict[int, Any]) -> Any:
    """The same function at work on copies; anything that leads to no module or parameter as it is."""
    if id(holder) in memo:
        return memo[id(holder)]
    if not isinstance(holder, types.FunctionType):
        return copy.deepcopy(holder, memo)
    cells = tuple(types.CellType() for _ in holder.__closure__ or ())
    names = dict(holder.__globals__)
    other = types.FunctionType(holder.__code__, names, holder.__name__, holder.__defaults__, cells)
    other.__kwdefaults__ = holder.__kwdefaults__
    memo[id(holder)] = other  # before its parts: a function may reach itself

    def again(each: object) -> object:
        return _rebound(each, memo) if any(True for _ in _held(each, set())) else each

    for cell, was in zip(cells, holder.__closure__ or (), strict=True):
        if not _is_empty(was):
            cell.cell_contents = again(was.cell_contents)
    for name in _names(holder.__code__):
        if name in names:
            names[name] = again(names[name])
    other.__defaults__ = tuple(again(each) for each in holder.__defaults__ or ()) or None
    if holder.__kwdefaults__:
        other.__kwdefaults__ = {name: again(each) for name, each in holder.__kwdefaults__.items()}
    return other
