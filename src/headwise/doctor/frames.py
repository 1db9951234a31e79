"""Whose line is running: the frames of the user's code outwards from here, without torch's and ours."""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass
from typing import Literal

from headwise.doctor.check import Place
from headwise.doctor.written import whose

MOST_FRAMES = 24


@dataclass(frozen=True)
class Frame:
    """A frame of the user's code on the way to an operation; `call` tells one call from the next."""

    place: Place
    call: int
    library: bool


def user_frames(limit: int = MOST_FRAMES) -> tuple[Frame, ...]:
    """The frames outwards from here that belong neither to torch nor to the doctor, innermost first.

    Stops where the doctor called the model: what lies beyond is not the user's model. What the doctor
    computes itself has no frames.
    """
    frame = inspect.currentframe()
    found: list[Frame] = []
    asking = __file__  # then the module of the doctor that asks
    outside = False
    while frame is not None and len(found) < limit:
        code = frame.f_code
        owner = owner_of(code)
        if owner == "doctor":
            if outside or asking not in {__file__, code.co_filename}:
                break
            asking = code.co_filename
        outside = outside or owner in {"user", "library"}
        if owner in {"user", "library"}:
            found.append(Frame(place_in(code, frame.f_lineno), id(frame), owner == "library"))
        frame = frame.f_back
    return tuple(found)


# By name, not by code: code objects compare equal whatever file they are from.
_owners: dict[str, Literal["user", "library", "torch", "doctor"]] = {}
_places: dict[tuple[str, str, int], Place] = {}


def owner_of(code: types.CodeType) -> Literal["user", "library", "torch", "doctor"]:
    """Whose code it is; Python's own works for whoever calls it, as torch does, and counts as torch's."""
    file = code.co_filename
    known = _owners.get(file)
    if known is None:
        # what is typed or piped into Python has no source to show, but it is the user's and has lines
        owner = "user" if file == "<stdin>" else whose(file)
        known = _owners[file] = "torch" if owner == "python" else owner
    return known


def place_in(code: types.CodeType, line: int) -> Place:
    """A line of this code as a place; the same one each time."""
    key = code.co_filename, code.co_qualname, line
    known = _places.get(key)
    if known is None:
        known = _places[key] = Place(code.co_filename, line, code.co_qualname)
    return known
