"""Pictures of attention: for each layer and head, how much each token of one side reads of the other."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from headwise.data.tokenizer import SPACE_MARK
from headwise.errors import ConfigError
from headwise.see.drawing import AMOUNT, HATCH, INK, MASKED, SOFT, Drawing, look, shortened
from headwise.see.fonts import LabelFonts, require_matplotlib
from headwise.see.heads import Head, head_facts
from headwise.see.heads_told import percent, titles
from headwise.see.stacks import Layer, Stack, StackKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: the side of a cell and the least that can bear a name, the heading, a stack's heading, the colour
# bar, the gap between panels, a panel's title, the names of the axes, about the largest all panels are.
_CELL, _NAMED_CELL, _TOP, _HEAD, _BAR, _GAP, _TITLE, _AXIS, _LARGEST = (
    0.2, 0.08, 0.5, 0.34, 0.95, 0.16, 0.36, 0.45, 26.0,
)  # fmt: skip
_POINTS, _HEADING, _CAPTION = 8.0, 12.0, 9.5
_NARROW = 1.05  # the least width of a panel that holds its title
_STATE_COLOUR, _ODD_COLOUR = "#b3261e", "#d9574e"
_LONGEST_NAME, _LONGEST_TITLE = 32, 200  # characters: a picture as wide as a name of thousands has no use
_SEEN: dict[StackKind, str] = {
    "cross": "a staircase from upper left to lower right goes through both texts in step",
    "encoder": "a dark diagonal looks at itself, one beside it at a neighbour",
    "decoder": "a dark line beside the diagonal looks at the token before",
    "self": "a dark diagonal looks at itself, one beside it at a neighbour",
}


def draw_attention(stacks: Sequence[Stack], title: str) -> Drawing:
    """Draw the weights of every layer (rows) and head (columns), keys across, queries downwards.

    Hatched cells are masked: not the same as a weight of 0, which is white. Each panel's title has the
    entropy of its head, in percent of the most possible, and its state where it has collapsed.
    Errors: ConfigError when there is no stack, or names do not fit; MissingExtra without matplotlib.
    """
    require_matplotlib("drawing attention")
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    _check(stacks)
    names = titles(stacks)
    stacks = [_with_short_names(stack) for stack in stacks]
    title = shortened(title, _LONGEST_TITLE)
    fonts = LabelFonts([*(name for stack in stacks for name in (*stack.queries, *stack.keys)), title])
    plans = [
        _Plan(stack, fonts, heading=name if len(stacks) > 1 else "")
        for stack, name in zip(stacks, names, strict=True)
    ]
    width = max(plan.width for plan in plans)
    caption = _caption(stacks)
    lines = textwrap.wrap(caption, max(30, int(width / (_CAPTION / 72 * 0.56))))
    foot = (len(lines) * 1.45 + 1.2) * _CAPTION / 72
    height = foot + sum(plan.height for plan in plans) + _TOP
    with look():
        figure = Figure(figsize=(width, height))
        page = _Page(figure, width, height)
        base = height - _TOP
        for plan in plans:
            base -= plan.height
            _draw_stack(page, plan, base, fonts)
        heading, font = fonts.fit(title)
        large = FontProperties(fname=str(font), size=_HEADING)
        page.text(0.14, height - 0.14, heading, va="top", fontproperties=large, color=INK)
        page.text(
            0.14, 0.5 * _CAPTION / 72, "\n".join(lines), va="bottom", fontsize=_CAPTION, color=SOFT,
            linespacing=1.45,
        )  # fmt: skip
    return Drawing(figure, caption, fonts.notice)


def _check(stacks: Sequence[Stack]) -> None:
    if not stacks or not all(stack.layers for stack in stacks):
        raise ConfigError("there must be at least one stack with one layer: got none; nothing would be drawn")
    for stack in stacks:
        wanted = (len(stack.queries), len(stack.keys))
        wrong = [list(each.weights.shape) for each in stack.layers if tuple(each.weights.shape[1:]) != wanted]
        if wrong:
            raise ConfigError(
                f"each map must be [heads, {wanted[0]} queries, {wanted[1]} keys]: got "
                f"{', '.join(map(str, wrong))}; name every token"
            )


def _caption(stacks: Sequence[Stack]) -> str:
    seen = dict.fromkeys(_SEEN[stack.kind] for stack in stacks)
    masked = any(bool((~layer.keep).any()) for stack in stacks for layer in stack.layers)
    parts = [
        "Each row is one query: the darker a cell, the more of its weight lies on that key.",
        f"{'; '.join(seen)}; a dark column is a token that all look at.".capitalize(),
        "Percent: the head's entropy, 100 is all keys alike, 0 one key.",
    ]
    if masked:
        parts.append("Hatched: masked, the query may not look there.")
    if any(bool((_is_odd(layer.weights) & layer.keep).any()) for stack in stacks for layer in stack.layers):
        parts.append("Red: not a weight (NaN, or outside 0 to 1).")
    return " ".join(parts)


def _is_odd(weights: Float[Tensor, "*axes"]) -> Bool[Tensor, "*axes"]:
    """Is it no weight, but for rounding in half precision?"""
    return ~((weights >= 0) & (weights <= 1 + 1e-3))


class _Page:
    """A figure measured in inches from its lower left; matplotlib is given shares of the whole."""

    def __init__(self, figure: Figure, width: float, height: float) -> None:
        self.figure, self._width, self._height = figure, width, height

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes in a box."""
        share = x / self._width, y / self._height, width / self._width, height / self._height
        return self.figure.add_axes(share)

    def text(self, x: float, y: float, text: str, **how: Any) -> None:
        """A text at a point."""
        self.figure.text(x / self._width, y / self._height, text, parse_math=False, **how)


class _Plan:
    """Where everything of one stack is, in inches from the lower left of its part of the page."""

    def __init__(self, stack: Stack, fonts: LabelFonts, heading: str) -> None:
        self.stack, self.heading = stack, heading
        self.num_layers, num_heads = len(stack.layers), max(each.weights.size(0) for each in stack.layers)
        across, down = len(stack.keys), len(stack.queries)
        # a long sentence gets smaller cells, and at last no names, rather than a picture that nobody can open
        cell = min(_CELL, _LARGEST / (num_heads * across), _LARGEST / (self.num_layers * down))
        self.points = _POINTS * cell / _CELL if cell >= _NAMED_CELL else 0.0
        self.size = cell * across, cell * down
        self.left = _AXIS + _room(stack.queries, fonts, self.points)
        self.bottom = _AXIS + _room(stack.keys, fonts, self.points)
        # narrow panels still have to hold their titles
        self._across = max(self.size[0], _NARROW) + _GAP
        self._down = self.size[1] + _TITLE + _GAP
        self.right = self.left + num_heads * self._across
        self.upper = self.bottom + self.num_layers * self._down - _GAP
        self.width = max(self.right + _BAR, 4.6)
        self.height = max(self.upper + (_HEAD if heading else 0.0), self.bottom + 1.2)

    @property
    def middle(self) -> tuple[float, float]:
        """The middle of all panels."""
        return (self.left + self.right - _GAP) / 2, (self.bottom + self.upper) / 2

    def panel(self, layer: int, head: int) -> tuple[float, float]:
        """The lower left of a panel: the first layer on top."""
        above = self.num_layers - 1 - layer
        return self.left + head * self._across, self.bottom + above * self._down


def _draw_stack(page: _Page, plan: _Plan, base: float, fonts: LabelFonts) -> None:
    stack = plan.stack
    image: Any = None
    for number, layer in enumerate(stack.layers):
        for head, judged in enumerate(head_facts(layer, kind=stack.kind)):
            x, y = plan.panel(number, head)
            axes = page.axes(x, base + y, *plan.size)
            image = _draw_map(axes, layer, head)
            _title(axes, f"layer {number + 1} head {head + 1}", judged)
            _name_ticks(axes, stack.keys if number == plan.num_layers - 1 else (), "x", fonts, plan.points)
            _name_ticks(axes, stack.queries if head == 0 else (), "y", fonts, plan.points)
    x, y = plan.middle
    tall = max(0.6, min(2.4, plan.upper - plan.bottom - _TITLE))
    bar = page.figure.colorbar(
        image, cax=page.axes(plan.right, base + y - tall / 2, 0.13, tall), ticks=[0, 0.05, 0.25, 0.5, 1]
    )
    bar.set_label("attention weight", fontsize=_POINTS + 1)
    bar.ax.tick_params(labelsize=_POINTS)
    read, reading = stack.axes
    page.text(x, base + 0.12, f"{read} \u2192", ha="center", va="bottom", fontsize=_POINTS + 2)
    page.text(0.14, base + y, f"\u2190 {reading}", rotation=90, va="center", fontsize=_POINTS + 2)
    if plan.heading:
        page.text(0.14, base + plan.height - 0.04, plan.heading, va="top", fontsize=_HEADING - 1)


def _draw_map(axes: Axes, layer: Layer, head: int) -> Any:
    """Weights on a scale from 0 to 1 that shows small ones; masked cells leave the hatched ground bare."""
    from matplotlib.colors import ListedColormap, PowerNorm

    keep = layer.keep[head if layer.keep.size(0) > 1 else 0]
    odd = _is_odd(layer.weights[head]) & keep
    weights = np.ma.masked_array(layer.weights[head].numpy(), mask=(~keep | odd).numpy())
    axes.patch.set(facecolor=MASKED, edgecolor=HATCH, hatch="////", linewidth=0)
    norm = PowerNorm(0.5, 0, 1)
    if bool(odd.any()):
        reds = np.ma.masked_array(np.ones(odd.shape), mask=~odd.numpy())
        axes.imshow(
            reds, cmap=ListedColormap([_ODD_COLOUR]), vmin=0, vmax=1, interpolation="nearest", aspect="auto"
        )
    return axes.imshow(weights, cmap=AMOUNT, norm=norm, interpolation="nearest", aspect="auto")


def _title(axes: Axes, name: str, judged: Head) -> None:
    number = "NaN" if judged.share != judged.share else f"{percent(judged.share)} %"
    axes.set_title(
        f"{name}\n{number} {judged.state}".rstrip(),
        fontsize=_POINTS, pad=3, linespacing=1.15, color=_STATE_COLOUR if judged.state else INK, loc="left",
    )  # fmt: skip


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
        spine.set_visible(True)


def _with_short_names(stack: Stack) -> Stack:
    def short(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(shortened(name, _LONGEST_NAME) for name in names)

    return replace(stack, queries=short(stack.queries), keys=short(stack.keys))


def _label(piece: str) -> str:
    # the tokenizer's mark of a space hangs below the line in most fonts
    return piece.replace(SPACE_MARK, "_")


def _room(pieces: Sequence[str], fonts: LabelFonts, points: float) -> float:
    """Inches that the longest name takes, estimated: only the drawing knows."""

    def columns(text: str) -> float:
        return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1.15 for c in text)

    longest = max(columns(fonts.fit(_label(piece))[0]) for piece in pieces)
    return 0.1 + points / 72 * 0.52 * longest
