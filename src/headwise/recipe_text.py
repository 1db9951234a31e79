"""The YAML of a recipe and of a run's config.yaml: one way to write it, one way to read it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# PyYAML has hardly any types
from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, cast

import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.reader import ReaderError

from headwise.config import RunConfig
from headwise.errors import ConfigError

# What PyYAML raises, beside its own errors, for nesting too deep and values such as `!!int x`.
_FAULTS = (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, RecursionError)


def write_recipe(config: RunConfig) -> str:
    """The configuration as YAML, every setting, defaults too.

    Law: parse_recipe gives the same values again, whatever text they hold.
    """
    return yaml.dump(asdict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def parse_recipe(text: str) -> Any:
    """What YAML says, in mappings, lists and scalars; whether they are settings is for others to judge.

    YAML 1.2's scalars (1e-4 is a number, `no` is text), without aliases, tags that make objects, or a key
    that comes twice.

    Errors: ConfigError saying in which line the fault is.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{where}{error.problem or error.context}") from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"line {line} holds the character U+{ord(text[error.position]):04X}") from error
    except _FAULTS as error:
        raise ConfigError(f"{type(error).__name__}: {' '.join(str(error)[:60].split())}") from error


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


def _write_list(dumper: yaml.SafeDumper, values: Iterable[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True)


_Dumper.add_representer(list, _write_list)
_Dumper.add_representer(tuple, _write_list)
