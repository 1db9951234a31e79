"""What the author of a subject gave: turned into a Subject, each field checked before anything runs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, cast

from torch import Tensor, nn

from headwise.doctor.subject import KINDS, Subject
from headwise.errors import DataError

EXAMPLE = 'def subject(): return {"model": ..., "inputs": (...,)}'
_KEYS = tuple(field.name for field in fields(Subject) if field.name not in ("name", "notes"))


def subject_from(made: object, source: str, shown: str) -> Subject:
    """A subject from what a function gave: a Subject, a dict of its fields, a model, or it and inputs."""
    if isinstance(made, Subject):
        return made
    if isinstance(made, nn.Module):
        return Subject(made, None)
    if isinstance(made, dict):
        return _from_dict(cast("dict[object, object]", made), source, shown)
    if isinstance(made, tuple):
        parts = cast("tuple[object, ...]", made)
        models = [part for part in parts if isinstance(part, nn.Module) and size_of(part)]
        if len(models) == 1 and parts[0] is models[0]:
            rest = parts[1:]
            inputs = rest[0] if len(rest) == 1 and are_tensors(rest[0]) else rest
            return Subject(models[0], inputs if rest and are_tensors(inputs) else None)
    raise DataError(
        f"{shown}: {source} must give a model, or a dict with one: got {type(cast('object', made)).__name__}"
        f"; write: {EXAMPLE}"
    )


def _from_dict(made: Mapping[object, object], source: str, shown: str) -> Subject:
    for key in made:
        if key not in _KEYS:
            close = difflib.get_close_matches(str(key), _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KEYS)}"
            raise DataError(f"{shown}: {source} has the unknown key {key!r}; {hint}")
    given = cast("dict[str, Any]", made)
    if given.get("model") is None:
        raise DataError(f"{shown}: {source} must have a model: got the keys {listed([*given])}; add 'model'")
    fields_given: dict[str, Any] = {"inputs": None, **given}
    return Subject(**fields_given)


def check_subject(subject: Subject, shown: str) -> None:
    """Refuse fields of the wrong type before anything runs.

    Errors: DataError naming the field.
    """

    def refuse(name: str, expected: str) -> None:
        value: object = getattr(subject, name)
        raise DataError(f"{shown}: {name} must be {expected}: got {type(value).__name__} {str(value)[:60]!r}")

    if not callable(subject.model):
        refuse("model", "an nn.Module or a callable that holds modules")
    if subject.inputs is not None and not are_tensors(subject.inputs):
        refuse("inputs", "a tensor, a tuple of them, or a dict of keyword arguments")
    if subject.kind is not None and subject.kind not in KINDS:
        refuse("kind", f"one of {', '.join(KINDS)}")
    if subject.layout not in (None, "batch-first", "time-major"):
        refuse("layout", "batch-first or time-major")
    if subject.pad_id is not None and type(subject.pad_id) is not int:
        refuse("pad_id", "a whole number or None")
    for name in ("call", "loss", "generate", "train_step"):
        if not (getattr(subject, name) is None or callable(getattr(subject, name))):
            refuse(name, "a function")
    if subject.optimizer is not None and not callable(getattr(subject.optimizer, "step", None)):
        refuse("optimizer", "a torch optimizer, or a wrapper of one with a step")


def are_tensors(value: object) -> bool:
    """Whether it can be inputs: a tensor, or a list or dict by name that holds some."""
    if isinstance(value, dict):
        held = cast("dict[object, object]", value)
        return any(isinstance(item, Tensor) for item in held.values()) and all(
            isinstance(k, str) for k in held
        )
    if isinstance(value, tuple | list):
        return any(are_tensors(item) for item in cast("list[object]", value))
    return isinstance(value, Tensor)


def size_of(model: nn.Module) -> int:
    """How many numbers its parameters are."""
    return sum(parameter.numel() for parameter in model.parameters())


def listed(names: Sequence[object]) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(map(str, names[:6]))
    return f"{shown} and {len(names) - 6} more" if len(names) > 6 else shown
