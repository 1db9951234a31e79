"""A picture of a confusion matrix: which classes are taken for which."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headwise.errors import ConfigError
from headwise.files import write_atomically
from headwise.see.drawing import SOFT
from headwise.see.fonts import LabelFonts, require_matplotlib

# Inches: the side of a cell, the least that can bear a count, what the heading and the axes' names
# take, the colour bar, the smallest matrix and about the largest.
_CELL, _NAMED_CELL, _TOP, _AXIS, _BAR, _LEAST, _LARGEST = 0.5, 0.16, 0.5, 0.5, 1.0, 2.2, 12.0
_POINTS, _HEADING = 9.0, 11.0


def draw_confusion(
    confusion: Int[ndarray, "C C"], classes: Sequence[str], path: Path, title: str
) -> str | None:
    """Draw how many of each class (downwards) were taken for which (across).

    The shade is the share of the row, so that a rare class is seen as well; the number is the count.
    Returns one line for the user when no installed font has a label's characters, else None.
    Errors: ConfigError when the names do not fit the matrix; MissingExtra without matplotlib;
    StorageError as write_atomically.
    """
    require_matplotlib("drawing a confusion matrix")
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    if confusion.shape != (len(classes), len(classes)):
        raise ConfigError(
            f"the matrix must have a row and a column for each class: got {list(confusion.shape)} for "
            f"{len(classes)} classes; give a name for each"
        )
    fonts = LabelFonts([*classes, title])  # the caption has no other characters
    fitted = [fonts.fit(name) for name in classes]
    cell = min(max(_CELL, _LEAST / len(classes)), _LARGEST / len(classes))
    points = min(_POINTS, _POINTS * cell / 0.3)
    room = 0.15 + points / 72 * 0.6 * max(len(text) for text, _ in fitted)
    side, left = cell * len(classes), _AXIS + room
    heading, font = fonts.fit(title)
    width = max(left + side + _BAR, 0.3 + _HEADING / 72 * 0.6 * len(heading))
    lines = textwrap.wrap(_caption(confusion, classes), max(24, int(width * 72 / (_POINTS * 0.58))))
    foot = _POINTS / 72 * (1.4 * len(lines) + 0.8)
    low = foot + _AXIS + room  # where the matrix begins
    height = low + side + _TOP
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, low / height, side / width, side / height))
    share = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)  # [C, C]
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    for axis, turn in ((axes.xaxis, 90), (axes.yaxis, 0)):
        axis.set_ticks(range(len(fitted)), [text for text, _ in fitted], rotation=turn)
        for tick, (_, file) in zip(axis.get_ticklabels(), fitted, strict=True):
            tick.set_fontproperties(FontProperties(fname=str(file), size=points))
            tick.set_parse_math(False)
        axis.set_tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set_color("0.75")
        spine.set_linewidth(0.6)
    if cell >= _NAMED_CELL:
        for (row, column), count in np.ndenumerate(confusion):
            shade = "white" if share[row, column] > 0.5 else "0.2"
            size = min(points, 72 * cell / (0.75 * max(len(str(count)), 2)))
            axes.text(column, row, str(count), ha="center", va="center", color=shade, fontsize=size)
    box = ((left + side + 0.2) / width, low / height, 0.13 / width, side / height)
    bar = figure.colorbar(image, cax=figure.add_axes(box), ticks=[0, 0.5, 1])
    bar.set_label("share of the true class", fontsize=_POINTS)
    bar.ax.tick_params(labelsize=_POINTS - 1)
    large = FontProperties(fname=str(font), size=_HEADING)
    top = (height - 0.14) / height
    figure.text(0.14 / width, top, heading, va="top", fontproperties=large, parse_math=False)
    middle = (left + side / 2) / width, (low + side / 2) / height
    figure.text(
        middle[0], (foot + 0.12) / height, "named \u2192", ha="center", va="bottom", fontsize=_POINTS + 1
    )
    figure.text(0.14 / width, middle[1], "\u2190 true", rotation=90, va="center", fontsize=_POINTS + 1)
    text, font = fonts.fit("\n".join(lines))
    small = FontProperties(fname=str(font), size=_POINTS)
    figure.text(
        0.14 / width, 0.08 / height, text, va="bottom", fontproperties=small, color=SOFT, linespacing=1.4,
        parse_math=False,
    )  # fmt: skip
    write_atomically(path, lambda beside: figure.savefig(beside, format="png", dpi=150))
    return fonts.notice


def _caption(confusion: Int[ndarray, "C C"], classes: Sequence[str]) -> str:
    """What to see: the diagonal, and which two are mistaken most."""
    told = "Each row is a true class, each column what it was named; right answers lie on the diagonal."
    wrong = confusion - np.diag(np.diag(confusion))
    most = int(wrong.max())
    if not most:
        return f"{told} Nothing was mistaken."
    true, named = (int(place[0]) for place in np.nonzero(wrong == most))
    return f"{told} Most often mistaken: {classes[true]} for {classes[named]}, {most} times."
