"""A finding's picture as inline SVG: a matrix as a heat map, rows of numbers as curves.

Colours are classes of the page's style sheet, so that one drawing serves light and dark. Nothing in it has an
id: a notebook may show many reports on one page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from headwise.doctor.check import Picture
from headwise.doctor.places import columns, visible

LEVELS = 8  # of colour on either side of zero: the style sheet has a class for each
_CELLS, _CURVES, _POINTS = 64, 8, 400  # how much of a large picture is drawn; what is left out is said
_SIDE, _LEFT, _TOP, _CHAR = 320, 56, 12, 7


def svg(picture: Picture) -> str:
    """A `<figure>` with the drawing, its legend in words, and the numbers themselves folded beneath."""
    rows = [list(row) for row in picture.values]
    if not any(rows):
        return ""
    title = _text(picture.title)
    draw = _matrix if picture.kind == "matrix" else _curve
    drawing, legend = draw(picture, rows)
    return (
        f'<figure class="picture"><p class="title">{title}</p>{drawing}'
        f"<figcaption>{_text(picture.caption)} <small>{' '.join(legend)}</small></figcaption>"
        f"{_numbers(picture, rows)}</figure>"
    )


def _matrix(picture: Picture, rows: list[list[float]]) -> tuple[str, list[str]]:
    high, wide = len(rows), max(len(row) for row in rows)
    shown = [row[:_CELLS] for row in rows[:_CELLS]]
    down, across = len(shown), max(len(row) for row in shown)
    cell = max(4, min(28, _SIDE // max(down, across, 1)))
    finite = [value for row in shown for value in row if math.isfinite(value)]
    most = max((abs(value) for value in finite), default=0.0)
    paths: dict[str, list[str]] = {}
    for y, row in enumerate(shown):
        for x, value in enumerate(row):
            left, top = _LEFT + x * cell, _TOP + y * cell
            square = f"M{left} {top}h{cell}v{cell}h-{cell}z"
            paths.setdefault(_class(value, most), []).append(square)
            if math.isnan(value):
                # a hatch, so that masked cells differ from zero for everyone, printed too
                half = cell // 2
                paths.setdefault("hatch", []).append(
                    f"M{left} {top + cell}l{cell} -{cell}M{left} {top + half}l{half} -{half}"
                    f"M{left + cell - half} {top + cell}l{half} -{half}"
                )
            elif math.isinf(value):
                paths.setdefault("hatch", []).append(
                    f"M{left} {top}l{cell} {cell}M{left + cell} {top}l-{cell} {cell}"
                )
    bottom, right = _TOP + down * cell, _LEFT + across * cell
    # a small matrix still has to hold the names of its axes
    width, height = max(right + 12, _length(picture.x_label)), max(bottom + 44, _length(picture.y_label))
    parts = [f'<path class="{name}" d="{"".join(d)}"/>' for name, d in sorted(paths.items(), key=_last_hatch)]
    parts.append(f'<path class="axis" d="M{_LEFT} {_TOP}H{right}V{bottom}H{_LEFT}z"/>')
    parts += _axis_words(picture, (_LEFT, right), (_TOP, bottom), height)
    parts += [_word(_LEFT + (0.5 + x) * cell, bottom + 14, str(x), "middle") for x in _ends(across)]
    parts += [_word(_LEFT - 6, _TOP + (0.5 + y) * cell + 4, str(y), "end") for y in _ends(down)]
    legend = [f"Colour: {_number(min(finite))} to {_number(max(finite))}." if finite else "No finite number."]
    every = [value for row in shown for value in row]
    if any(math.isnan(value) for value in every):
        legend.append("Hatched: masked.")
    if any(math.isinf(value) for value in every):
        legend.append("Crossed: infinite.")
    if (down, across) != (high, wide):
        legend.append(f"The first {down} of {high} rows and {across} of {wide} columns.")
    return _frame(picture, width, height, parts), legend


def _curve(picture: Picture, rows: list[list[float]]) -> tuple[str, list[str]]:
    shown = rows[:_CURVES]
    longest = max(len(row) for row in shown)
    step = -(-longest // _POINTS)
    finite = [value for row in shown for value in row if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    right, bottom = _LEFT + 20 + _SIDE, _TOP + 200
    left = _LEFT + 20  # numbers are wider here
    # halves, for the difference of two large numbers need not be finite
    span = high / 2 - low / 2

    def point(x: int, value: float) -> tuple[float, float]:
        over = (right - left) * x / max(longest - 1, 1)
        return left + over, bottom - (bottom - _TOP) * ((value / 2 - low / 2) / span if span else 0.5)

    parts = [f'<path class="axis" d="M{left} {_TOP}V{bottom}H{right}"/>']
    for number, row in enumerate(shown):
        pieces: list[str] = []
        pen = "M"
        for x in range(0, len(row), step):
            if not math.isfinite(row[x]):
                pen = "M"  # the line breaks where there is no number
                continue
            px, py = point(x, row[x])
            # a line of no length with round ends is a dot: a lone point is seen
            pieces.append(f"{pen}{px:.1f} {py:.1f}" + ("h0" if pen == "M" else ""))
            pen = "L"
        parts.append(f'<path class="line c{number}" d="{"".join(pieces)}"/>')
    parts += [
        _word(left - 6, point(0, value)[1] + 4, _number(value), "end")
        for value in (low, low / 2 + high / 2, high)
    ]
    parts += [_word(point(x, low)[0], bottom + 14, str(x), "middle") for x in _ends(longest)]
    height = bottom + 44
    parts += _axis_words(picture, (left, right), (_TOP, bottom), height)
    drawn = height
    for number, label in enumerate(picture.labels[: len(shown)]):
        parts.append(f'<path class="line c{number}" d="M{left} {drawn + 4}h24"/>')
        parts.append(_word(left + 32, drawn + 8, visible(label), "start"))
        drawn += 20
    widest = max((columns(visible(label)) for label in picture.labels), default=0)
    width = max(right + 16, left + 40 + widest * _CHAR)
    legend = [f"The first {len(shown)} of {len(rows)} lines."] if len(shown) < len(rows) else []
    if step > 1:
        legend.append(f"One point in {step} is drawn.")
    if any(not math.isfinite(value) for row in shown for value in row):
        legend.append("A gap is no finite number.")
    return _frame(picture, width, drawn + 4, parts), legend


def _frame(picture: Picture, width: int, height: int, parts: Sequence[str]) -> str:
    name = _text(". ".join(filter(None, (picture.title, picture.caption))))
    return (
        f'<svg role="img" aria-label="{name}" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">{"".join(parts)}</svg>'
    )


def _axis_words(
    picture: Picture, across: tuple[int, int], down: tuple[int, int], height: int
) -> Iterator[str]:
    if picture.x_label:
        x = max(sum(across) / 2, _length(picture.x_label) / 2)
        yield _word(x, height - 14, visible(picture.x_label), "middle")
    if picture.y_label:
        y = max(sum(down) / 2, _length(picture.y_label) / 2)
        turned = f' transform="rotate(-90 12 {y:.1f})"'
        yield f'<text x="12" y="{y:.1f}" text-anchor="middle"{turned}>{_text(picture.y_label)}</text>'


def _numbers(picture: Picture, rows: list[list[float]], most: int = 12) -> str:
    """The numbers as a table, for readers who cannot see the drawing and those who do not trust it."""
    wide = max(len(row) for row in rows)
    named = picture.kind == "curve" and len(picture.labels) >= len(rows)
    body: list[str] = []
    for number, row in enumerate(rows[:most]):
        head = _text(picture.labels[number]) if named else str(number)
        masked = "masked" if picture.kind == "matrix" else "nan"
        cells = "".join(f"<td>{masked if math.isnan(v) else _number(v)}</td>" for v in row[:most])
        body.append(f'<tr><th scope="row">{head}</th>{cells}</tr>')
    head = "".join(f'<th scope="col">{x}</th>' for x in range(min(wide, most)))
    cut = len(rows) > most or wide > most
    rest = f"<p>Cut short: {len(rows)} rows of {wide} in all.</p>" if cut else ""
    return (
        "<details><summary>The numbers</summary>"
        '<div class="wide" tabindex="0" role="region" aria-label="The numbers">'
        f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f"{rest}</details>"
    )


def _class(value: float, most: float) -> str:
    if math.isnan(value):
        return "masked"
    if math.isinf(value):
        return f"{'p' if value > 0 else 'n'}{LEVELS}"
    level = 0 if most == 0 else math.ceil(abs(value) / most * LEVELS)  # 0 is exact zero and nothing else
    return f"{'n' if value < 0 else 'p'}{level}" if level else "p0"


def _last_hatch(item: tuple[str, list[str]]) -> tuple[bool, str]:
    return item[0] == "hatch", item[0]


def _ends(length: int) -> list[int]:
    """Which of the numbers 0 to length - 1 are written along an axis."""
    return list(range(length)) if length <= 6 else [0, (length - 1) // 2, length - 1]


def _word(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _length(text: str) -> int:
    """About how long a text is drawn, with a little room about it: only the browser knows."""
    return columns(visible(text)) * _CHAR + 8


def _number(value: float) -> str:
    return f"{value:.3g}"


def _text(text: str) -> str:
    return escape(visible(text))
