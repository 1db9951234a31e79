"""What the configuration classes demand of their values, each in one line of words."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import cast

from headwise.errors import ConfigError


def require(claim: bool, message: str) -> None:
    """Raise ConfigError with the message unless the claim holds."""
    if not claim:
        raise ConfigError(message)


def at_least(low: float, **values: float) -> None:
    """Refuse a value below `low`, infinity and NaN, under its keyword's name."""
    for name, value in values.items():
        # refuses NaN too; math.isfinite would overflow on an int of 400 digits
        require(low <= value < math.inf, f"{name} must be at least {low}: got {value}")


def check_types(config: object) -> None:
    """Refuse what Python would let pass and torch would not, such as 16.0 for a whole number."""
    for item in fields(config):  # pyright: ignore[reportArgumentType]
        value: object = getattr(config, item.name)
        if value is None and "None" in str(item.type):
            continue
        kind = str(item.type).partition(" ")[0]
        is_bool = isinstance(value, bool)
        if kind == "int":
            # __index__: whatever counts as a whole number, such as numpy's
            is_right, expected = hasattr(value, "__index__") and not is_bool, "a whole number"
        elif kind == "float":
            is_right, expected = hasattr(value, "__float__") and not is_bool, "a number"
        elif kind == "bool":
            is_right, expected = is_bool, "True or False"
        elif kind == "str":
            is_right, expected = isinstance(value, str), "text"
        elif kind.startswith("tuple["):  # all hold texts; a text by itself would be taken letter by letter
            is_right = isinstance(value, tuple) and all(
                isinstance(part, str) for part in cast("tuple[object, ...]", value)
            )
            expected = "a tuple of texts, such as ('a', 'b')"
        elif isinstance(item.default_factory, type):  # a section
            is_right, expected = isinstance(value, item.default_factory), f"a {kind}"
        else:
            continue
        require(is_right, f"{item.name} must be {expected}: got {value!r}")


def probability(**values: float) -> None:
    """Refuse a value outside of [0, 1), under its keyword's name."""
    for name, value in values.items():
        require(0 <= value < 1, f"{name} must be at least 0 and below 1: got {value}; 0 turns it off")


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not one of those allowed."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    require(value in allowed, f"{name} must be one of {', '.join(allowed)}: got {shown}")


def expanded(name: str) -> Path:
    """A path as a shell would take it: a leading ~ is the home directory, where there is one."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~ of a user that does not exist
        return Path(name)
