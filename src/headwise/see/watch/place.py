"""The user's line of an operation, when the watch is what ran the model."""

from __future__ import annotations

import os

from headwise.doctor.check import Place
from headwise.doctor.graph import Op

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def line_of(op: Op) -> Place | None:
    """The innermost line of the user's own files; of a library's where no line of the user's takes part."""
    frames = [frame for frame in op.frames if not is_ours(frame.place)]
    own = next((frame for frame in frames if not frame.library), None)
    chosen = own or next(iter(frames), None)
    return chosen.place if chosen is not None else None


def is_ours(place: Place) -> bool:
    """Does a line stand in the watch itself?"""
    return place.file.startswith(_OURS)
