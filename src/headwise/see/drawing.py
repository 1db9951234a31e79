"""One look for every plot: colours, a caption that says what to see, PNG and SVG."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

import io
import textwrap
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwise.errors import ConfigError
from headwise.files import write_atomically
from headwise.see.fonts import LabelFonts, require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Form = Literal["png", "svg"]

# The light colours of the pages (doctor.page_style), so that a picture and a page say the same thing alike.
INK, SOFT, RULE, MASKED, HATCH = "#1d2126", "#59626e", "#d5d9df", "#e3e5e9", "#8b93a0"
LINES = ("#1f5fa8", "#b8500c", "#1c6b3c", "#9c2a86", "#6b5b00", "#b3261e", "#4b4fb5", "#2f6f73")
# beside its colour each line has a dash of its own, for those who see no colours and for print
DASHES: tuple[Any, ...] = ("solid", (0, (6, 3)), (0, (2, 3)), (0, (10, 3)), (0, (10, 3, 2, 3)), (0, (4, 2)))
AMOUNT, SIGNED = "Blues", "RdBu"  # 0 to much; below and above zero

_LOOK: Any = {
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.dpi": 150,
    "svg.hashsalt": "headwise",  # the same picture is the same file
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
}
_POINTS = 9.5  # of the caption
_INCH = 1 / 72


@dataclass(frozen=True)
class Drawing:
    """A finished plot. caption: what to see in it; notice: one line about characters that no font has."""

    figure: Figure
    caption: str
    notice: str | None = None

    def save(self, path: str | Path) -> Path:
        """Write it as PNG or SVG, as the name ends, and return the path.

        Errors: ConfigError for another ending; StorageError as write_atomically.
        """
        path = Path(path)
        form = form_of(path)
        write_atomically(path, lambda beside: beside.write_bytes(self._bytes(form)))
        return path

    def _bytes(self, form: Form) -> bytes:
        buffer = io.BytesIO()
        with look():
            metadata = {"Date": None} if form == "svg" else {"Description": self.caption}
            self.figure.savefig(buffer, format=form, metadata=metadata)
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        return self._bytes("png")


def form_of(path: Path) -> Form:
    """The form that a file's name asks for. Errors: ConfigError for another ending than .png and .svg."""
    match path.suffix.lower():
        case ".png":
            return "png"
        case ".svg":
            return "svg"
        case _:
            raise ConfigError(
                f"a picture must end in .png or .svg: got {path}; write {path.stem or 'it'}.png"
            )


@contextmanager
def look() -> Generator[None]:
    """Matplotlib as all plots here have it, for the block only."""
    import matplotlib

    with matplotlib.rc_context(_LOOK):
        yield


@contextmanager
def sheet(
    width: float, height: float, caption: str, purpose: str, rows: int = 1, columns: int = 1, **grid: Any
) -> Generator[tuple[Figure, Sequence[Sequence[Axes]]]]:
    """An empty figure with axes [rows][columns] over its caption; sizes in inches, without the caption.

    purpose: "drawing a mask", for the error where matplotlib is missing. Errors: MissingExtra.
    """
    require_matplotlib(purpose)
    from matplotlib.figure import Figure

    lines = textwrap.wrap(caption, max(30, int(width / (_POINTS * _INCH * 0.56))))
    foot = (len(lines) * 1.45 + 1.2) * _POINTS * _INCH
    with look():
        figure = Figure(figsize=(width, height + foot), layout="constrained")
        engine: Any = figure.get_layout_engine()
        share = foot / (height + foot)
        engine.set(rect=(0.01, share, 0.98, 0.99 - share), h_pad=0.06, w_pad=0.06)
        axes: Any = figure.subplots(rows, columns, squeeze=False, **grid)
        yield figure, axes
        figure.text(
            0.16 / width, 0.5 * _POINTS * _INCH / (height + foot), "\n".join(lines),
            va="bottom", fontsize=_POINTS, color=SOFT, linespacing=1.45,
        )  # fmt: skip


def name_ticks(axes: Axes, which: Literal["x", "y"], names: Sequence[str], fonts: LabelFonts) -> None:
    """Names along an axis, in a font that has their characters; every n-th where there are too many."""
    from matplotlib.font_manager import FontProperties

    axis = axes.xaxis if which == "x" else axes.yaxis
    step = -(-len(names) // 64)
    shown = [(place, *fonts.fit(names[place])) for place in range(0, len(names), step)]
    axis.set_ticks([place for place, _, _ in shown], [shortened(text) for _, text, _ in shown])
    size = 9 if len(shown) <= 24 else 7
    for tick, (_, _, file) in zip(axis.get_ticklabels(), shown, strict=True):
        tick.set_fontproperties(FontProperties(fname=str(file), size=size))
        tick.set_parse_math(False)
        if which == "x" and max(len(text) for _, text, _ in shown) > 2:
            tick.set_rotation(90)
    axis.set_tick_params(length=0, pad=3)


def whole_numbers(axis: Axis) -> None:
    """Mark an axis of counts at whole numbers alone."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", integer=True))


def shortened(text: str, most: int = 24) -> str:
    """The text, its end cut off with an ellipsis where it is longer than `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "\u2026"
