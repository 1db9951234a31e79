"""Which function of the user's was handed which tensor: its calls while a recording is active."""

from __future__ import annotations

import sys
import types
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headwise.doctor.check import Place
from headwise.doctor.frames import owner_of, place_in
from headwise.doctor.trace import Recording, Value


@dataclass(eq=False)
class Call:
    """One call of a function of the user's: what tensors it was given, and which operations ran inside it."""

    place: Place
    given: dict[str, Value]
    first: int
    depth: int
    last: int = -1
    library: bool = False


@contextmanager
def calls(record: Recording) -> Generator[list[Call]]:
    """Watch the user's function calls while a recording is active: who was handed which tensor."""
    found: list[Call] = []
    stack: list[Call] = []
    passed: set[types.CodeType] = set()

    def watch(frame: types.FrameType, event: str, _arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            owner = owner_of(code)
            if owner in {"torch", "doctor"}:
                passed.add(code)
                return
            given: dict[str, Value] = {}
            held = frame.f_locals
            for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
                tensor = held.get(name)
                value = record.value_of(tensor) if isinstance(tensor, Tensor) else None
                if value is not None:
                    given[name] = value
            depth = len(stack)
            place = place_in(code, code.co_firstlineno)
            call = Call(place, given, len(record.ops), depth, library=owner == "library")
            found.append(call)
            stack.append(call)
        elif event == "return" and stack:
            stack.pop().last = len(record.ops)

    was = sys.getprofile()
    # A lambda first: the many calls inside torch and of built-ins cost no more than a look into a set.
    sys.setprofile(
        lambda frame, event, arg: (
            watch(frame, event, arg)
            if (event == "call" or event == "return") and frame.f_code not in passed
            else None
        )
    )
    try:
        yield found
    finally:
        sys.setprofile(was)
