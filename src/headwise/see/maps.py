"""Pictures of attention: for each layer and head, how much each token of one side reads of the other."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from headwise.data.tokenizer import SPACE_MARK
from headwise.errors import ConfigError
from headwise.files import write_atomically
from headwise.see.fonts import LabelFonts, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Inches: the side of a cell and the least that can bear a name, the heading, the colour bar, the gap
# between panels, a panel's title, the names of the axes, and about the largest all panels together may be.
_CELL, _NAMED_CELL, _TOP, _BAR, _GAP, _TITLE, _AXIS, _LARGEST = 0.2, 0.08, 0.5, 0.95, 0.16, 0.2, 0.45, 26.0
_POINTS, _HEADING = 8.0, 12.0


def draw_attention(
    maps: Sequence[Float[Tensor, "H Tq Tk"]],
    source_pieces: Sequence[str],
    target_pieces: Sequence[str],
    path: Path,
    title: str = "Cross-attention",
    names: tuple[str, str] = ("source: read", "target: written"),
) -> str | None:
    """Draw the weights of every layer (rows) and head (columns), source across, target downwards.

    maps: one tensor a layer; each row of a map sums to 1.
    source_pieces, target_pieces: names of the Tk and Tq tokens.
    names: of the two axes.
    Returns one line for the user when no installed font has a label's characters, else None.
    Errors: ConfigError when the names do not fit the maps; MissingExtra without matplotlib;
    StorageError as write_atomically.
    """
    require_matplotlib("drawing attention")
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    wanted = (len(target_pieces), len(source_pieces))
    if not maps or any(tuple(weights.shape[1:]) != wanted for weights in maps):
        raise ConfigError(
            f"each map must be [heads, {wanted[0]} target tokens, {wanted[1]} source tokens]: got "
            f"{', '.join(str(list(weights.shape)) for weights in maps) or 'no map'}"
        )
    fonts = LabelFonts([*source_pieces, *target_pieces, title])
    plan = _Plan(maps, source_pieces, target_pieces, fonts)
    figure = Figure(figsize=(plan.width, plan.height))
    for layer, weights in enumerate(maps):
        for head in range(weights.size(0)):
            axes = figure.add_axes(plan.panel(layer, head))
            shown = weights[head].detach().float().cpu().numpy()
            image = axes.imshow(shown, cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
            axes.set_title(f"layer {layer + 1} head {head + 1}", fontsize=_POINTS + 1, pad=3)
            _name_ticks(axes, source_pieces if layer == plan.num_layers - 1 else (), "x", fonts, plan.points)
            _name_ticks(axes, target_pieces if head == 0 else (), "y", fonts, plan.points)
            if layer == head == 0:
                bar = figure.colorbar(image, cax=figure.add_axes(plan.bar()), ticks=[0, 0.5, 1])
                bar.set_label("attention weight", fontsize=_POINTS + 1)
                bar.ax.tick_params(labelsize=_POINTS)
    heading, font = fonts.fit(title)
    large = FontProperties(fname=str(font), size=_HEADING)
    figure.text(*plan.at(0.14, plan.height - 0.14), heading, va="top", fontproperties=large, parse_math=False)
    x, y = plan.middle
    figure.text(*plan.at(x, 0.12), f"{names[0]} \u2192", ha="center", va="bottom", fontsize=_POINTS + 2)
    figure.text(*plan.at(0.14, y), f"\u2190 {names[1]}", rotation=90, va="center", fontsize=_POINTS + 2)
    write_atomically(path, lambda beside: figure.savefig(beside, format="png", dpi=150))
    return fonts.notice


class _Plan:
    """Where everything is, in inches from the lower left; matplotlib is given shares of the whole."""

    def __init__(
        self, maps: Sequence[Tensor], source: Sequence[str], target: Sequence[str], fonts: LabelFonts
    ) -> None:
        self.num_layers, num_heads = len(maps), max(weights.size(0) for weights in maps)
        # a long sentence gets smaller cells, and at last no names, rather than a picture that nobody can open
        cell = min(_CELL, _LARGEST / (num_heads * len(source)), _LARGEST / (self.num_layers * len(target)))
        self.points = _POINTS * cell / _CELL if cell >= _NAMED_CELL else 0.0
        self._size = cell * len(source), cell * len(target)
        self._left = _AXIS + _room(target, fonts, self.points)
        self._bottom = _AXIS + _room(source, fonts, self.points)
        # narrow panels still have to hold their titles
        self._across = max(self._size[0], 0.95) + _GAP
        self._down = self._size[1] + _TITLE + _GAP
        self._right = self._left + num_heads * self._across
        self._upper = self._bottom + self.num_layers * self._down - _GAP
        self.width, self.height = self._right + _BAR, max(self._upper + _TOP, self._bottom + 1.6)

    @property
    def middle(self) -> tuple[float, float]:
        """The middle of all panels."""
        return (self._left + self._right - _GAP) / 2, (self._bottom + self._upper) / 2

    def at(self, x: float, y: float) -> tuple[float, float]:
        """A point."""
        return x / self.width, y / self.height

    def panel(self, layer: int, head: int) -> tuple[float, float, float, float]:
        """The box of a panel: the first layer on top."""
        above = self.num_layers - 1 - layer
        return self._box(self._left + head * self._across, self._bottom + above * self._down, *self._size)

    def bar(self) -> tuple[float, float, float, float]:
        """The box of the colour bar."""
        tall = max(0.6, min(2.4, self._upper - self._bottom - _TITLE))
        return self._box(self._right, self.middle[1] - _TITLE / 2 - tall / 2, 0.13, tall)

    def _box(self, x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
        return (*self.at(x, y), *self.at(width, height))


def _name_ticks(axes: Axes, pieces: Sequence[str], side: str, fonts: LabelFonts, points: float) -> None:
    """Write the tokens along one side of a panel; inner panels have none."""
    from matplotlib.font_manager import FontProperties

    axis = axes.xaxis if side == "x" else axes.yaxis
    fitted = [fonts.fit(_label(piece)) for piece in pieces] if points else []
    axis.set_ticks(range(len(fitted)), [text for text, _ in fitted], rotation=90 if side == "x" else 0)
    for tick, (_, font) in zip(axis.get_ticklabels(), fitted, strict=True):
        tick.set_fontproperties(FontProperties(fname=str(font), size=points))
        tick.set_parse_math(False)  # "$" is a token here
    axis.set_tick_params(length=0, pad=3)
    for spine in axes.spines.values():
        spine.set_color("0.75")
        spine.set_linewidth(0.6)


def _label(piece: str) -> str:
    # the tokenizer's mark of a space hangs below the line in most fonts
    return piece.replace(SPACE_MARK, "_")


def _room(pieces: Sequence[str], fonts: LabelFonts, points: float) -> float:
    """Inches that the longest name takes, estimated: only the drawing knows."""

    def columns(text: str) -> float:
        return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1.15 for c in text)

    longest = max(columns(fonts.fit(_label(piece))[0]) for piece in pieces)
    return 0.1 + points / 72 * 0.52 * longest
