"""Their config.json: each setting read with its type, and every refusal in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, cast

from headwise.errors import RunError

Activation = Literal["relu", "gelu", "gelu-tanh", "silu"]

# Their names of what we can compute; the first of each of ours is the one that is written.
_ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "silu": "silu",
    "swish": "silu",
}


_MOST = 2**40  # no axis of any tensor is so long


@dataclass(frozen=True)
class Options:
    """What config.json says. A setting that is left out, or null, has the default given where it is read.

    source: the file, for messages. architecture: the class that was saved, of `Layout.heads`.
    names: the tensors that lie beside it, with the body's prefix.
    refused: where it is given, what `only` and `need` refuse is noted there and reading goes on.
    Errors of every method: RunError, where a setting has a type or a value that cannot be read.
    """

    source: str
    values: Mapping[str, Any]
    architecture: str
    names: frozenset[str] = frozenset()
    refused: list[str] | None = None

    @property
    def is_body(self) -> bool:
        """Whether no head stands on the model that was saved."""
        return "For" not in self.architecture and not self.architecture.endswith(("HeadModel", "MTModel"))

    def integer(self, name: str, default: int) -> int:
        """A whole number."""
        value = self._value(name, default)
        if type(value) is not int:
            self.refuse(name, "a whole number")
        if abs(value) > _MOST:
            self.refuse(name, "at most 2^40", "the file is damaged")
        return value

    def optional(self, name: str, default: int | None = None) -> int | None:
        """A whole number or null."""
        return None if self.values.get(name, default) is None else self.integer(name, default or 0)

    def number(self, name: str, default: float) -> float:
        """A number."""
        value = self._value(name, default)
        if type(value) not in (int, float):
            self.refuse(name, "a number")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if type(value) is not bool:
            self.refuse(name, "true or false")
        return value

    def text(self, name: str, default: str) -> str:
        """A word."""
        value = self._value(name, default)
        if type(value) is not str:
            self.refuse(name, "a word")
        return value

    def section(self, name: str) -> dict[str, Any]:
        """An object; empty where it is left out or null."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(name, "an object")
        return dict(cast("dict[str, Any]", value))

    def words(self, name: str, count: int) -> list[str]:
        """So many words; none where it is left out."""
        value = self._value(name, [])
        found = cast("list[object]", value) if isinstance(value, list) else [None]
        if not all(isinstance(word, str) for word in found) or len(found) not in (0, count):
            self.refuse(name, f"{count} words, one for each layer")
        return cast("list[str]", found)

    def ids(self, name: str) -> tuple[int, ...]:
        """One token or several; none where it is left out or null."""
        value = self._value(name, [])
        found = cast("list[object]", value) if isinstance(value, list) else [value]
        if any(type(index) is not int for index in found):
            self.refuse(name, "a token's id, or several")
        return tuple(cast("list[int]", found))

    def activation(self, name: str, default: str) -> Activation:
        """A function that we have."""
        value = self.text(name, default)
        if value not in _ACTIVATIONS:
            self.refuse(name, f"one of {', '.join(_ACTIVATIONS)}", "headwise has no other")
        return _ACTIVATIONS[value]

    def only(self, name: str, wanted: object, why: str, *, default: object = ...) -> None:
        """Refuse a setting that is there and is not the one that we compute."""
        value = self._value(name, wanted if default is ... else default)
        self.need(value == wanted and type(value) is type(wanted), name, shown(wanted), why)

    def need(self, is_so: bool, name: str, expected: str, why: str) -> None:
        """Refuse a setting with which their code or ours cannot go on."""
        if is_so:
            return
        if self.refused is None:
            self.refuse(name, expected, why)
        self.refused.append(f"{name} must be {expected}: got {self._got(name)}; {why}")

    @property
    def pad_id(self) -> int | None:
        """pad_token_id; null, like the -1 of old files, where no id means padding."""
        value = self.optional("pad_token_id")
        return None if value is None or value < 0 else value

    @property
    def num_classes(self) -> int:
        """What a classifier tells apart."""
        labels = self.section("id2label")
        return len(labels) if labels else self.integer("num_labels", 2)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the model's outputs; none where nobody named them."""
        names = self.section("id2label")
        places = [str(n) for n in range(len(names))]
        if names.keys() != set(places) or not all(isinstance(name, str) for name in names.values()):
            self.refuse("id2label", "a name for each class from 0 on")
        return tuple(names[place] for place in places)

    def refuse(self, name: str, expected: str, way: str = "correct it") -> NoReturn:
        """What was expected, what came, what to do."""
        raise RunError(f"{self.source}: {name} must be {expected}: got {self._got(name)}; {way}")

    def _value(self, name: str, default: object) -> Any:
        value = self.values.get(name)
        return default if value is None else value

    def _got(self, name: str) -> str:
        return shown(self.values[name]) if name in self.values else "nothing"


def activation_name(activation: Activation) -> str:
    """Their name of our function."""
    return next(name for name, ours in _ACTIVATIONS.items() if ours == activation)


def labels(classes: int | None, names: Sequence[str] = ()) -> dict[str, object]:
    """The classes by their names, or as they name them where nobody did."""
    told = names or [f"LABEL_{n}" for n in range(classes or 0)]
    found = {str(n): name for n, name in enumerate(told)}
    return {"id2label": found, "label2id": {name: n for n, name in enumerate(told)}} if found else {}


def shown(value: object) -> str:
    """A value for a message: as JSON has it, where that is short."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
