"""Curves over the steps of a training, and maps of many of them, as inline SVG in the pages' own style.

Colours are classes of the page's style sheet, so that one drawing serves light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from headwise.doctor.places import columns, visible

MOST_LINES = 8  # the style sheet has so many colours; more series are drawn as a map
MOST_POINTS = 300
WIDE, HIGH, LEFT, TOP, CHAR = 560, 200, 64, 12, 7
LEVELS = 8

Series = Mapping[str, Sequence[float | None]]


def figure(
    title: str,
    caption: str,
    steps: Sequence[int],
    series: Series,
    unit: str,
    *,
    is_log: bool = False,
    band: tuple[float, float] | None = None,
) -> str:
    """A `<figure>`: a line for each series over the steps, or a row of a map each where there are many.

    unit: of the values, for the axis. is_log: powers of ten along it. band: between which values is usual.
    Returns "" where no series holds a finite number.
    """
    held = {name: [_number(v) for v in values] for name, values in series.items()}
    held = {name: values for name, values in held.items() if any(v is not None for v in values)}
    if not held or not steps:
        return ""
    stride = -(-len(steps) // MOST_POINTS)
    steps = steps[::stride]
    held = {name: values[::stride] for name, values in held.items()}
    draw = _lines if len(held) <= MOST_LINES else _map
    drawing = draw(f"{title}. {caption}", steps, held, unit, is_log, band)
    cut = f" <small>One measured step in {stride} is drawn.</small>" if stride > 1 else ""
    return (
        f'<figure class="picture"><p class="title">{_text(title)}</p>{drawing}'
        f"<figcaption>{_text(caption)}{cut}</figcaption>{_table(steps, held)}</figure>\n"
    )


def _lines(
    name: str, steps: Sequence[int], series: Series, unit: str, is_log: bool, band: tuple[float, float] | None
) -> str:
    values = [v for each in series.values() for v in each if v is not None and (v > 0 or not is_log)]
    if not values:
        return ""
    scale = _Scale([*values, *(band or ())], is_log)
    across = _Across(steps)
    right, bottom = LEFT + WIDE, TOP + HIGH
    parts: list[str] = []
    if band is not None:
        top, low = scale(band[1]), scale(band[0])
        parts.append(f'<path class="usual" d="M{LEFT} {top:.1f}H{LEFT + WIDE}V{low:.1f}H{LEFT}z"/>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    for tick, text in scale.ticks():
        parts.append(f'<path class="grid" d="M{LEFT} {tick:.1f}H{right}"/>')
        parts.append(_word(LEFT - 6, tick + 4, text, "end"))
    parts += across.ticks(bottom)
    for number, values_of in enumerate(series.values()):
        pieces: list[str] = []
        pen = "M"
        for step, value in zip(steps, values_of, strict=True):
            if value is None or (is_log and value <= 0):
                pen = "M"
                continue
            pieces.append(f"{pen}{across(step):.1f} {scale(value):.1f}" + ("h0" if pen == "M" else ""))
            pen = "L"
        parts.append(f'<path class="line c{number}" d="{"".join(pieces)}"/>')
    height = bottom + 40
    parts += _axis_names("step (optimizer updates)", unit, bottom)
    for number, label in enumerate(series) if len(series) > 1 else ():
        parts.append(f'<path class="line c{number}" d="M{LEFT} {height}h24"/>')
        parts.append(_word(LEFT + 32, height + 4, visible(label), "start"))
        height += 20
    widest = max(columns(visible(label)) for label in series)
    return _frame(name, max(right + 16, LEFT + 40 + widest * CHAR), height, parts)


def _map(
    name: str, steps: Sequence[int], series: Series, unit: str, is_log: bool, band: tuple[float, float] | None
) -> str:
    """A row for each series, a column for each measured step; dark is much."""

    def seen(value: float | None) -> float | None:
        if value is None or (is_log and value <= 0):
            return None
        return math.log10(value) if is_log else value

    rows = {label: [seen(v) for v in values] for label, values in series.items()}
    every = [v for values in rows.values() for v in values if v is not None]
    if not every:
        return ""
    low, high = min(every), max(every)
    left = 16 + max(columns(visible(label)) for label in rows) * CHAR
    cell, wide = 14, max(2, min(24, WIDE // max(len(steps), 1)))
    paths: dict[str, list[str]] = {}
    for y, values in enumerate(rows.values()):
        for x, value in enumerate(values):
            square = f"M{left + x * wide} {TOP + y * cell}h{wide}v{cell}h-{wide}z"
            if value is None:
                paths.setdefault("masked", []).append(square)
                continue
            level = 1 + round((LEVELS - 1) * (value - low) / (high - low)) if high > low else LEVELS // 2
            paths.setdefault(f"p{level}", []).append(square)
    parts = [f'<path class="{kind}" d="{"".join(d)}"/>' for kind, d in sorted(paths.items())]
    bottom, right = TOP + len(rows) * cell, left + len(steps) * wide
    parts.append(f'<path class="axis" d="M{left} {TOP}H{right}V{bottom}H{left}z"/>')
    parts += [_word(left - 6, TOP + (y + 0.8) * cell, visible(label), "end") for y, label in enumerate(rows)]
    ends = sorted({0, len(steps) - 1})
    parts += [
        _word(left + (x + 0.5) * wide, bottom + 14, f"{steps[x]:,}", "start" if x == 0 else "end")
        for x in ends
    ]
    parts.append(_word(left + len(steps) * wide / 2, bottom + 30, "step (optimizer updates)", "middle"))
    ends_told = [10**v if is_log else v for v in (low, high)]
    parts.append(
        _word(left, bottom + 48, f"light {ends_told[0]:.3g} to dark {ends_told[1]:.3g}: {unit}", "start")
    )
    width = max(right + 16, left + (len(unit) + 40) * CHAR)
    return _frame(name, width, bottom + 56, parts)


class _Scale:
    """Values to heights, with a little room above and below; powers of ten where is_log."""

    def __init__(self, values: Sequence[float], is_log: bool) -> None:
        self._is_log = is_log
        seen = [self._of(v) for v in values]
        low, high = min(seen), max(seen)
        room = 0.05 * (high - low) or 0.2 * abs(high) or 0.5
        self._low, self._high = low - room, high + room

    def _of(self, value: float) -> float:
        return math.log10(value) if self._is_log else value

    def __call__(self, value: float) -> float:
        return TOP + HIGH * (1 - (self._of(value) - self._low) / (self._high - self._low))

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Where numbers are written along the axis, and which."""
        if self._is_log and self._high - self._low >= 1:
            first, last = math.ceil(self._low), math.floor(self._high)
            for power in range(first, last + 1, max(1, (last - first) // 4)):
                yield self(10.0**power), f"{10.0**power:.0e}" if abs(power) > 3 else f"{10.0**power:g}"
            return
        for share in (0.05, 0.5, 0.95):
            seen = self._low + share * (self._high - self._low)
            value = 10**seen if self._is_log else seen
            yield TOP + HIGH * (1 - share), f"{value:.3g}"


class _Across:
    """Steps to places from left to right."""

    def __init__(self, steps: Sequence[int]) -> None:
        self._first, self._last = steps[0], max(steps[-1], steps[0] + 1)

    def __call__(self, step: int) -> float:
        return LEFT + WIDE * (step - self._first) / (self._last - self._first)

    def ticks(self, bottom: int) -> Iterator[str]:
        """The first step, the middle, the last."""
        for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
            step = round(self._first + share * (self._last - self._first))
            yield _word(self(step), bottom + 14, f"{step:,}", anchor)  # where it is: half a step is no step


def _axis_names(x_name: str, y_name: str, bottom: int) -> Iterator[str]:
    yield _word(LEFT + WIDE / 2, bottom + 28, x_name, "middle")
    y = TOP + HIGH / 2
    turned = f' transform="rotate(-90 12 {y})"'
    yield f'<text x="12" y="{y}" text-anchor="middle"{turned}>{_text(y_name)}</text>'


def _table(steps: Sequence[int], series: Series, most: int = 8) -> str:
    """The numbers, at a few steps: for readers who cannot see the drawing and those who do not trust it."""
    spread = range(most if len(steps) > 1 else 1)
    chosen = sorted({n * (len(steps) - 1) // max(most - 1, 1) for n in spread})
    head = "".join(f'<th scope="col">step {steps[n]:,}</th>' for n in chosen)
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th>'
        + "".join(f"<td>{'' if values[n] is None else f'{values[n]:.4g}'}</td>" for n in chosen)
        + "</tr>"
        for name, values in series.items()
    )
    return (
        "<details><summary>The numbers</summary>"
        '<div class="wide" tabindex="0" role="region" aria-label="The numbers">'
        f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _frame(name: str, width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<div class="wide"><svg role="img" aria-label="{_text(name)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">'
        f"{''.join(parts)}</svg></div>"
    )


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _word(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _text(text: str) -> str:
    return escape(visible(text))
