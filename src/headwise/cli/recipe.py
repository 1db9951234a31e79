"""A recipe: a YAML file whose keys mirror RunConfig, read with errors that name the file and the line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from headwise.cli.arguments import brief, nearest
from headwise.cli.settings import Section
from headwise.errors import ConfigError
from headwise.recipe_text import parse_recipe, write_recipe

__all__ = ["find_recipe", "read_recipe", "write_recipe"]

_LARGEST = 1_000_000


def read_recipe(path: Path, sections: Sequence[Section]) -> dict[str, Any]:
    """Path of each setting -> its value as YAML reads it; types are checked by whoever asks.

    Errors: ConfigError naming the file when it cannot be read, is not YAML (with the line), or holds a
    key that is no setting.
    """
    text = _text(path)
    try:
        content = parse_recipe(text)
    except ConfigError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from error
    if content is None:
        return {}
    found: dict[str, Any] = {}
    _flatten(content, "", path, {section.path: section for section in sections}, found)
    return found


def find_recipe(name: str) -> Path:
    """A recipe that comes with headwise: beside the package when installed, else in the checkout.

    Errors: ConfigError when neither has it.
    """
    package = Path(__file__).resolve().parent.parent
    places = [package / "recipes" / name, package.parent.parent / "recipes" / name]
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(
        f"the recipe {name} came with headwise and is gone: expected {places[0]}; install it again"
    )


def _text(path: Path) -> str:
    if path.is_dir():
        if (path / "config.yaml").is_file():
            raise ConfigError(
                f"{path} is a run, not a recipe: to go on with it, headwise train {path / 'config.yaml'}"
            )
        raise ConfigError(f"{path} is a directory: expected a recipe, a YAML file such as recipes/dates.yaml")
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError as error:
        beside = path.parent.glob("*.y*ml") if path.parent.is_dir() else ()
        close = difflib.get_close_matches(str(path), map(str, beside), n=1)
        hint = f"did you mean {close[0]}?" if close else "recipes/dates.yaml is one to start from"
        raise ConfigError(f"no recipe {path}; {hint}") from error
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read the recipe {path}: {reason}") from error
    if len(content) > _LARGEST:
        raise ConfigError(f"{path} is no recipe: expected at most {_LARGEST:,} bytes of YAML")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path} must be YAML in UTF-8: line {line} holds the byte 0x{content[error.start]:02x}"
        ) from error


def _flatten(
    content: Any, prefix: str, path: Path, sections: Mapping[str, Section], found: dict[str, Any]
) -> None:
    where = prefix.rstrip(".")
    if not isinstance(content, dict):
        what = f"{where} must be a section" if where else "expected a recipe"
        raise ConfigError(f"{path}: {what}, lines of 'name: value': got {brief(content)}")
    settings = {setting.path for setting in sections[where].settings}
    inner = {name for name in sections if name and name.rpartition(".")[0] == where}
    for key, value in cast("dict[Any, Any]", content).items():
        name = f"{prefix}{key}"
        if name in settings:
            found[name] = value
        elif name in inner:
            if value is not None:  # every line of the section commented out
                _flatten(value, f"{name}.", path, sections, found)
        else:
            known = [*settings, *inner, *(s.path for section in sections.values() for s in section.settings)]
            shown = name if len(name) <= 60 and name.isprintable() else brief(name)
            raise ConfigError(f"{path}: unknown key {shown}{nearest(name, known)}")
