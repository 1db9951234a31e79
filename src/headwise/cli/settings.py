"""Every setting of a recipe, read off the configuration classes: its path, type, default and help.

A field of `config/` and its line under `Args:` are all there is to write: recipes, options and
`--help` follow from them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from headwise.config import RunConfig


@dataclass(frozen=True)
class Setting:
    """One value of a recipe: 'model.d_model', its type, what it is when left out, its one line of help."""

    path: str
    hint: Any
    default: Any
    help: str

    @property
    def option(self) -> str:
        """How the command line spells it."""
        return f"--{self.path}"


@dataclass(frozen=True)
class Section:
    """A class of settings: '' is the recipe itself, then 'model', 'data', 'data.dates' and so on."""

    path: str
    title: str
    settings: tuple[Setting, ...]


@cache
def sections(cls: type[Any] = RunConfig, path: str = "") -> tuple[Section, ...]:
    """The sections of a configuration class, outer before inner."""
    hints, docs = get_type_hints(cls), _documented(cls)
    mine: list[Setting] = []
    inner: list[Section] = []
    for field in fields(cls):
        name, hint = f"{path}{field.name}", hints[field.name]
        if is_dataclass(hint):
            inner += sections(cast("type[Any]", hint), f"{name}.")
        else:
            assert field.default is not MISSING, f"{name} needs a default: a recipe may leave it out"
            mine.append(Setting(name, hint, field.default, docs[field.name]))
    title = inspect.getdoc(cls) or ""
    return (Section(path.rstrip("."), title.partition("\n")[0].rstrip("."), tuple(mine)), *inner)


def build(values: Mapping[str, Any], cls: type[Any] = RunConfig, path: str = "") -> Any:
    """The configuration that has the given values, by path, and defaults elsewhere.

    Errors: ConfigError of the configuration class for values that cannot work together.
    """
    arguments: dict[str, Any] = {}
    for name, hint in get_type_hints(cls).items():
        if is_dataclass(hint):
            arguments[name] = build(values, cast("type[Any]", hint), f"{path}{name}.")
        elif f"{path}{name}" in values:
            arguments[name] = values[f"{path}{name}"]
    return cls(**arguments)


def expected(hint: Any) -> str:
    """What a value of this type looks like, in words: 'a whole number', 'one of post, pre'."""
    words: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if hint in words:
        return words[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return "a list such as [a, b]"
    some = [expected(argument) for argument in arguments if argument is not NoneType]
    return " or ".join([*some, "null"]) if NoneType in arguments else str(getattr(hint, "__name__", hint))


def _documented(cls: type[Any]) -> dict[str, str]:
    """Field name -> its text under `Args:`, joined to one line."""
    _, _, listing = (inspect.getdoc(cls) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {6,}.*)*)", listing, re.MULTILINE)
    found = {name: " ".join(text.split()).rstrip(".") for name, text in entries}
    missing = [field.name for field in fields(cls) if field.name not in found]
    assert not missing, f"{cls.__name__} has no line under Args: for {', '.join(missing)}"
    return found
