"""A recipe: a YAML file whose keys mirror RunConfig, read with errors that name the file and the line."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# PyYAML has hardly any types
from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from headwise.cli.arguments import brief, nearest
from headwise.cli.settings import Section
from headwise.config import RunConfig
from headwise.errors import ConfigError

_LARGEST = 1_000_000
# What PyYAML raises, beside its own errors, for nesting too deep and values such as `!!int x`.
_FAULTS = (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, RecursionError)


def read_recipe(path: Path, sections: Sequence[Section]) -> dict[str, Any]:
    """Path of each setting -> its value as YAML reads it; types are checked by whoever asks.

    Errors: ConfigError naming the file when it cannot be read, is not YAML (with the line), or holds a
    key that is no setting.
    """
    content = _parse(path, _text(path))
    if content is None:
        return {}
    found: dict[str, Any] = {}
    _flatten(content, "", path, {section.path: section for section in sections}, found)
    return found


def write_recipe(config: RunConfig) -> str:
    """The configuration as YAML; read again it gives the same configuration."""
    plain = cast("dict[str, Any]", _plain(asdict(config)))
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


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


def _parse(path: Path, text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" line {mark.line + 1}, column {mark.column + 1}:" if mark else ""
        raise ConfigError(f"{path} is not valid YAML:{where} {error.problem or error.context}") from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(
            f"{path} is not valid YAML: line {line} holds the character U+{ord(text[error.position]):04X}"
        ) from error
    except _FAULTS as error:
        raise ConfigError(f"{path} is not valid YAML: {type(error).__name__}: {brief(str(error))}") from error


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


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in cast("dict[str, Any]", value).items()}
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


class _Loader(yaml.SafeLoader):
    """Safe YAML of scalars, lists and mappings: no aliases, no key twice, and 1e-4 is a number."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 PyYAML's own form

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = cast(Any, self.peek_event())
            raise ComposerError(None, None, "aliases (*name) are not for recipes", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise ConstructorError(None, None, f"the key {name} comes twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Lists on one line, everything else in the block form, no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


# YAML 1.1, which PyYAML reads, takes 1e-4 for text, `no` for false and 1:30 for ninety; 1.2 does not.
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9][0-9_]*\.[0-9_]*)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
):
    for _class in (_Loader, _Dumper):  # what either version would misread is written in quotes
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), list(_first)
        )


def _write_list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=True)


_Dumper.add_representer(list, _write_list)
