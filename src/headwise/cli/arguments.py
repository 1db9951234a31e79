"""Parse the arguments of one command; every mistake is a ConfigError of one line, never a usage dump."""

# pyright: reportUnknownMemberType=false
# jsonargparse leaves **kwargs without a type
from __future__ import annotations

import argparse
import difflib
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, cast, get_args, get_origin

from jsonargparse import ArgumentParser

from headwise.cli.settings import Section, expected
from headwise.errors import ConfigError

# What the library raises for a value; the YAML inside one adds the others.
_FAULTS = (argparse.ArgumentError, ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError)
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 60
_BRIEF.maxlevel = 3


def brief(value: object) -> str:
    """A value as it may stand in a one-line message, however long or deep it is."""
    return _BRIEF.repr(value)


def nearest(wrong: str, known: Iterable[str]) -> str:
    """'; did you mean X?' when something known is near, else nothing.

    'd_model' is near to 'model.d_model': whoever forgets a section means the setting. 'model' opens
    a section.
    """
    names = list(dict.fromkeys(known))
    inside = [name for name in names if name.startswith(f"{wrong}.")]
    if inside:
        return f"; it is a section: set one of its values, such as {inside[0]}"
    bare = wrong.lstrip("-").lower()
    ends = {name: name.lstrip("-").rpartition(".")[2] for name in names}
    starts = [name for name in names if len(wrong) > 3 and name.startswith(wrong)]
    close = [name for name, end in ends.items() if end == bare] or starts
    close = close or difflib.get_close_matches(wrong, names, n=1, cutoff=0.7)
    if not close:
        like = difflib.get_close_matches(bare, ends.values(), n=1, cutoff=0.75)
        close = [name for name, end in ends.items() if end in like]
    return f"; did you mean {' or '.join(close[:3])}?" if close else ""


class CommandParser:
    """The arguments of one command: names in capitals by place, options by --name, settings by --path."""

    def __init__(self, command: str, usage: str, description: str, epilog: str | None = None) -> None:
        self.command = command
        self._parser = ArgumentParser(
            prog=f"headwise {command}",
            usage=f"headwise {command} {usage}",
            description=description,
            epilog=epilog,
            exit_on_error=False,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        self._see_help = f" (see headwise {command} --help)"
        self._places: dict[str, str | None] = {}
        self._hints: dict[str, Any] = {}
        self._flags: list[str] = []
        self._repeated: list[str] = []
        self._required: list[str] = []
        self._short: dict[str, str] = {}

    def add_place(self, name: str, help: str, default: str | None = None) -> None:
        """An argument known by its place; one with a default may be left out."""
        self._places[name] = default
        self._parser.add_argument(name.lower(), metavar=name, nargs="?", help=help)

    def add_option(
        self, name: str, hint: Any, help: str, metavar: str, is_required: bool = False, short: str = ""
    ) -> None:
        """An option --NAME VALUE, also -S VALUE; left out, it is absent from what `parse` returns."""
        help = help.replace("%", "%%")
        spelt = [f"-{short}", f"--{name}"] if short else [f"--{name}"]
        self._short |= {f"-{short}": name} if short else {}
        self._parser.add_argument(*spelt, type=hint, default=None, metavar=metavar, help=help)
        self._hints[name] = hint
        if is_required:
            self._required.append(name)

    def add_texts(self, name: str, help: str, metavar: str) -> None:
        """An option --NAME TEXT that may be given several times; `parse` returns all its texts, always."""
        self.add_option(name, str, help, metavar)
        self._repeated.append(name)

    def add_flag(self, name: str, help: str) -> None:
        """An option without a value: given or not."""
        self._parser.add_argument(f"--{name}", action="store_true", help=help)
        self._flags.append(name)

    def add_settings(self, sections: Sequence[Section], hidden: Sequence[str] = ()) -> None:
        """Every setting of a recipe as an option; left out, it is absent from what `parse` returns.

        hidden: paths that are accepted without a line in the help.
        """
        for section in sections:
            # a heading without a line under it says nothing
            is_shown = any(setting.path not in hidden for setting in section.settings)
            group = self._parser
            if is_shown:
                group = self._parser.add_argument_group(section.path or "recipe", section.title)
            for setting in section.settings:
                left_out = "" if setting.default is None else f" (default {_spelt(setting.default)})"
                shown = f"{setting.help}{left_out}".replace("%", "%%")
                group.add_argument(
                    setting.option,
                    type=setting.hint,
                    default=None,
                    metavar=_metavar(setting.hint),
                    help=argparse.SUPPRESS if setting.path in hidden else shown,
                )
                self._hints[setting.path] = setting.hint

    def parse(self, arguments: Sequence[str]) -> dict[str, Any]:
        """What the arguments say, by name or path: options only where given, places, flags and texts always.

        A list of texts may be given as one word: notes.txt is [notes.txt].

        Errors: ConfigError for anything that the command does not take.
        """
        given, placed = self._scan(arguments)

        def convert(values: Mapping[str, Any]) -> Any:
            # one scanner of the words is enough: the library only sees --name=value, and judges the values
            words = [f"--{name}={value}" for name, value in values.items()]
            return self._parser.parse_args(words, defaults=False)

        alone: dict[str, Any] = {
            name: (value,)
            for name, value in given.items()
            if _takes_texts(self._hints[name]) and _is_word(value)
        }
        others = {name: value for name, value in given.items() if name not in alone}
        return placed | alone | self._converted(others, "--", convert)

    def check(self, values: Mapping[str, Any], where: str) -> dict[str, Any]:
        """Values by path, from a recipe, each brought to its type.

        Errors: ConfigError for a value of another type, naming the key and `where` it stands.
        """

        def convert(values: Mapping[str, Any]) -> Any:
            return self._parser.parse_object(nested(values), defaults=False)

        # the library would read a text again and take "null" in quotes for null
        texts = {
            name: v for name, v in values.items() if isinstance(v, str) and _takes_text(self._hints[name])
        }
        others = {name: value for name, value in values.items() if name not in texts}
        return texts | self._converted(others, f"{where}: ", convert)

    def answers_help(self, arguments: Sequence[str]) -> bool:
        """Print the help if it is asked for; nothing else is then done, or complained about."""
        asked = any(word in ("-h", "--help") for word in arguments)
        if asked:
            sys.stdout.write(self._parser.format_help())
        return asked

    def _scan(self, arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, Any]]:
        """What was typed: options with their text; places, flags and options with several texts."""
        given: dict[str, str] = {}
        texts: dict[str, list[str]] = {name: [] for name in self._repeated}
        placed: list[str] = []
        flags = dict.fromkeys(self._flags, False)
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            name, equals, value = word.partition("=")
            name = f"--{self._short[name]}" if name in self._short else name
            bare = name.removeprefix("--")
            if word == "--":
                placed += rest
                break
            if word == "-" or not word.startswith("-"):
                placed.append(word)
            elif name == f"--{bare}" and bare in flags:
                if equals:
                    raise ConfigError(f"{name} takes no value: got {brief(value)}")
                flags[bare] = True
            elif name != f"--{bare}" or bare not in self._hints:
                known = [f"--{known}" for known in [*self._hints, *flags, "help"]]
                raise ConfigError(f"unknown option {_bounded(name)}{nearest(name, known)}{self._see_help}")
            else:
                if not equals:
                    value = self._next_value(bare, rest)
                given[bare] = value
                if bare in texts:
                    texts[bare].append(given.pop(bare))
        missing = [f"--{name}" for name in self._required if name not in given]
        return given, self._seat(placed, missing) | flags | texts

    def _next_value(self, name: str, rest: list[str]) -> str:
        if not rest or rest[0].startswith("--"):
            is_text = bool(rest) and _takes_text(self._hints[name])
            way_out = (
                f"; for a text that begins with --, write --{name}={_bounded(rest[0])}" if is_text else ""
            )
            raise ConfigError(f"--{name} needs a value: expected {expected(self._hints[name])}{way_out}")
        return rest.pop(0)

    def _seat(self, placed: Sequence[str], missing: Sequence[str]) -> dict[str, Any]:
        """Each argument without a name to its place."""
        if len(placed) > len(self._places):
            takes = " ".join(self._places) or "options only"
            raise ConfigError(
                f"unexpected argument {brief(placed[len(self._places)])}: headwise {self.command} takes "
                f"{takes}{self._see_help}"
            )
        values = [*placed, *list(self._places.values())[len(placed) :]]
        found = dict(zip(self._places, values, strict=True))
        missing = [*[name for name, value in found.items() if value is None], *missing]
        if missing:
            raise ConfigError(f"{' and '.join(missing)} must be given{self._see_help}")
        return {name.lower(): value for name, value in found.items()}

    def _converted(
        self, values: Mapping[str, Any], prefix: str, convert: Callable[[Mapping[str, Any]], Any]
    ) -> dict[str, Any]:
        """Each value in the type of its setting; prefix: how the user knows the name."""

        def wrong(name: str, got: str, but: str = "") -> ConfigError:
            return ConfigError(f"{prefix}{name} must be {expected(self._hints[name])}{but}: got {got}")

        try:
            parsed = convert(values)
        except _FAULTS:
            # the library's words are not for users, and do not always name the value: ask for each alone
            for name, value in values.items():
                try:
                    convert({name: value})
                except _FAULTS as error:
                    raise wrong(name, brief(value)) from error
            raise
        found: dict[str, Any] = {}
        for name in values:
            value = parsed[name.replace("-", "_")]  # how argparse spells it inside
            if value is None and NoneType not in get_args(self._hints[name]):
                raise wrong(name, "null")
            if type(value) is int and abs(value) >= 2**63:
                raise wrong(name, brief(value), " below 2**63")
            found[name] = tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """'model.d_model': 1 as {'model': {'d_model': 1}}."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *above, name = path.split(".")
        level = tree
        for part in above:
            level = level.setdefault(part, {})
        level[name] = value
    return tree


def _takes_text(hint: Any) -> bool:
    return hint is str or (str in get_args(hint) and get_origin(hint) is not tuple)


def _takes_texts(hint: Any) -> bool:
    return get_origin(hint) is tuple and get_args(hint)[0] is str


def _is_word(text: str) -> bool:
    """Whether a text is a value by itself, not the YAML of a list, of a mapping, or of nothing."""
    return text.strip() not in ("", "~", "null", "Null", "NULL") and text.lstrip()[0] not in "[{\"'"


def _bounded(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."


class _Formatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30)


def _metavar(hint: Any) -> str:
    words = expected(hint)
    if words.startswith("one of "):
        return "{" + words.removeprefix("one of ").replace(", ", ",") + "}"
    short = {"a whole number": "N", "a number": "X", "true or false": "{true,false}", "text": "TEXT"}
    return short.get(words.removesuffix(" or null"), "LIST")


def _spelt(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return str(value)
