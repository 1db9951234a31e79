"""A run's config.yaml: the whole configuration, written out, read back and compared."""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import yaml

from headwise.config import RunConfig
from headwise.errors import RunError
from headwise.files import write_text_atomically
from headwise.recipe_text import parse_recipe, write_recipe


def write_config(path: Path, config: RunConfig) -> None:
    """Every setting, defaults too: a later version may have others. It is a recipe for the same run.

    Errors: StorageError as write_atomically.
    """
    write_text_atomically(path, write_recipe(config))


def read_config(path: Path) -> RunConfig:
    """The configuration that a run was started with.

    Errors: RunError naming the file when it is no configuration of headwise.
    """
    try:
        text = path.read_text(encoding="utf-8")
        content: object = parse_recipe(text)
        _check_sections(content)
        try:
            return _filled(RunConfig, content)
        except TypeError:
            # the first runs were written by the rules of YAML 1.1, where 1e5 without quotes is text
            with contextlib.suppress(yaml.YAMLError, TypeError, ValueError, OverflowError):
                return _filled(RunConfig, yaml.safe_load(text))
            raise
    except (OSError, TypeError, ValueError) as error:  # ValueError: UTF-8 and ConfigError too
        reason = " ".join(str(error).split())
        raise RunError(f"{path} is damaged or no configuration of headwise: {reason}; restore it") from None


def differences(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    """Every setting in which two configurations differ, but for `run`: a run may be moved."""
    for item in dataclasses.fields(old):
        before, after = getattr(old, item.name), getattr(new, item.name)
        if dataclasses.is_dataclass(before):
            yield from differences(before, after, f"{prefix}{item.name}.")
        elif before != after and prefix + item.name != "run":
            yield f"{prefix}{item.name}: the run has {before}, asked for {after}"


def _check_sections(content: object) -> None:
    """A later version may add a setting, but without one of its sections the file was cut."""
    found: set[object] = set(cast("dict[object, object]", content)) if isinstance(content, dict) else set()
    names = [section.name for section in dataclasses.fields(RunConfig)]
    if not found.issuperset(names):
        raise TypeError(f"expected the sections {', '.join(names)}")


def _filled(kind: type[Any], content: object) -> Any:
    """A dataclass from what YAML gave; its own checks run as at any construction."""
    if not isinstance(content, dict):
        raise TypeError(f"expected the fields of {kind.__name__}, got {type(content).__name__}")
    hints, values = get_type_hints(kind), cast("dict[str, Any]", content)
    for name, value in values.items():
        hint = hints.get(name)  # an unknown field is refused by the dataclass itself
        if dataclasses.is_dataclass(hint):
            values[name] = _filled(cast("type[Any]", hint), value)
        elif hint is not None and not _fits(value, hint):
            raise TypeError(f"{name} cannot be {value!r}")
        elif isinstance(value, list):
            values[name] = tuple(cast("list[object]", value))
    return kind(**values)


def _fits(value: object, hint: Any) -> bool:
    """Whether what YAML gave is of the type: a tuple is a list there."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin is tuple:
        return isinstance(value, list) and all(
            _fits(v, get_args(hint)[0]) for v in cast("list[object]", value)
        )
    if hint is float:
        return type(value) in (int, float)
    return type(value) is hint
