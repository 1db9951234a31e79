"""A mask as a picture: who may look at whom."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwise.errors import ConfigError
from headwise.see.drawing import HATCH, LINES, MASKED, RULE, Drawing, name_ticks, sheet, whole_numbers
from headwise.see.fonts import LabelFonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_PANELS, _ACROSS = 12, 4
_LINED = 40  # cells of a side up to which each cell has a border


def draw_mask(
    keep: Tensor | npt.ArrayLike,
    *,
    queries: Iterable[object] | None = None,
    keys: Iterable[object] | None = None,
    title: str = "",
) -> Drawing:
    """Draw a keep-mask, True = may look: [Tq, Tk], or anything that broadcasts to [B, H, Tq, Tk].

    One panel for each row of the batch and each head that the mask has of its own, 12 at most; blue may be
    looked at, hatched may not. The caption counts, and says what the mask shows: the future hidden or not,
    keys that nobody sees (padding), queries that may look nowhere.
    queries, keys: names for the axes; numbers where none are given. One list serves both where Tq = Tk.
    Errors: ConfigError for a mask that is not boolean or has another number of axes, or names that do not
    fit; MissingExtra without matplotlib.
    """
    maps, names = _panels(_tensor(keep))
    rows, columns = maps[0].shape
    queries, keys = _texts(queries), _texts(keys)
    keys = queries if keys is None and rows == columns else keys
    _check_names(queries, rows, "queries")
    _check_names(keys, columns, "keys")
    shown = maps[:_MOST_PANELS]
    caption = _caption(maps, len(shown))
    across = min(len(shown), _ACROSS)
    down = math.ceil(len(shown) / across)
    side = 3.4 if len(shown) == 1 else 2.2
    wide, high = (
        side * min(1.6, columns / max(rows, columns) + 0.25),
        side * max(0.25, rows / max(rows, columns)),
    )
    fonts = LabelFonts([*(queries or ()), *(keys or ()), title])
    width, height = max(4.8, across * (wide + 0.5) + 0.9), down * (high + 0.55) + 0.75
    with sheet(width, height, caption, "drawing a mask", down, across) as (figure, grid):
        for number, axes in enumerate(axes for row in grid for axes in row):
            if number >= len(shown):
                axes.set_visible(False)
                continue
            _panel(axes, shown[number], names[number])
            if number % across == 0:
                axes.set_ylabel("\u2190 query (position)")
            if number >= len(shown) - across:
                axes.set_xlabel("key (position) \u2192")
            if queries is not None and number % across == 0:
                name_ticks(axes, "y", queries, fonts)
            if keys is not None and number >= len(shown) - across:
                name_ticks(axes, "x", keys, fonts)
        if title:
            text, file = fonts.fit(title)
            figure.suptitle(text, x=0.16 / width, ha="left", fontsize=12, font=file)
    return Drawing(figure, caption, fonts.notice)


def _tensor(keep: object) -> Tensor:
    """A mask as a tensor with numbers in it, from whatever holds them."""
    if isinstance(keep, Tensor) and keep.is_meta:
        raise ConfigError("keep must hold values: got a tensor on the meta device, which has none")
    if isinstance(keep, Tensor):
        return keep.to_dense() if keep.layout is not torch.strided else keep
    try:
        return torch.as_tensor(np.asarray(keep))
    except (TypeError, ValueError):
        raise ConfigError(
            f"keep must be a boolean mask [Tq, Tk], True = may look: got {type(keep).__name__}"
        ) from None


def _texts(names: Iterable[object] | None) -> list[str] | None:
    return None if names is None else [str(name) for name in names]


def _panels(keep: Tensor) -> tuple[list[Tensor], list[str]]:
    """The maps [Tq, Tk] that the mask has of its own, each with a name."""
    if keep.dtype is not torch.bool:
        raise ConfigError(
            f"keep must be boolean, True = may look: got {keep.dtype}; for numbers that are added to the "
            "scores "
            "draw bias > -1, for 1 = may look keep.bool(), and ~keep where True means hidden"
        )
    if not 2 <= keep.dim() <= 4 or keep.numel() == 0:
        raise ConfigError(
            f"keep must be [Tq, Tk], or broadcast to [B, H, Tq, Tk]: got {list(keep.shape)}; a padding mask "
            "[B, T] becomes keep[:, None, None, :]"
        )
    whole = keep.detach().cpu()
    whole = whole.reshape((1,) * (4 - whole.dim()) + tuple(whole.shape))  # [B, H, Tq, Tk]
    batch, heads = whole.shape[:2]
    maps = [whole[b, h] for b in range(batch) for h in range(heads)]
    names = [
        ", ".join(
            part for part in (f"row {b}" if batch > 1 else "", f"head {h}" if heads > 1 else "") if part
        )
        for b in range(batch)
        for h in range(heads)
    ]
    return maps, names


def _panel(axes: Axes, keep: Tensor, name: str) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Rectangle

    rows, columns = keep.shape
    # one hatched sheet behind all cells, allowed ones laid over it: a hatch for each would take minutes
    box = Rectangle((-0.5, -0.5), columns, rows, facecolor=MASKED, hatch="////", edgecolor=HATCH, linewidth=0)
    axes.add_patch(box)
    axes.imshow(
        np.ma.masked_where(~keep.numpy(), np.ones((rows, columns))), cmap=ListedColormap([LINES[0]]),
        interpolation="nearest", aspect="equal" if rows > 1 else "auto", zorder=2,
    )  # fmt: skip
    if max(rows, columns) <= _LINED:
        for y in range(1, rows):
            axes.axhline(y - 0.5, color=RULE, linewidth=0.5, zorder=3)
        for x in range(1, columns):
            axes.axvline(x - 0.5, color=RULE, linewidth=0.5, zorder=3)
    for spine in axes.spines.values():
        spine.set_visible(True)
    whole_numbers(axes.xaxis)
    if rows == 1:
        axes.set_yticks([0], ["every query"])
    else:
        whole_numbers(axes.yaxis)
    if name:
        axes.set_title(name, fontsize=10)


def _caption(maps: list[Tensor], shown: int) -> str:
    allowed, cells = sum(int(m.sum()) for m in maps), sum(m.numel() for m in maps)
    parts = [
        f"Blue: may look; hatched: hidden. {allowed:,} of {cells:,} pairs are allowed "
        f"({allowed / cells:.0%})."
    ]
    parts += _facts(maps)
    if shown < len(maps):
        parts.append(f"The first {shown} of {len(maps)} maps are drawn.")
    return " ".join(parts)


def _facts(maps: list[Tensor]) -> list[str]:
    """What the masks say of future, padding and queries with nowhere to look."""
    facts: list[str] = []
    rows, columns = maps[0].shape
    if not any(m.any() for m in maps):
        return ["Nobody may look anywhere: the mask is inverted, or calls everything padding."]
    if rows == columns and rows > 1:
        causal = torch.ones(rows, rows, dtype=torch.bool).tril()
        if all(torch.equal(m, ~causal) or torch.equal(m, causal.T) for m in maps):
            return ["Every query may look at later positions alone: this is a causal mask turned round."]
        future = sum(int(m.triu(1).any(1).sum()) for m in maps)
        if not future:
            facts.append("No query may look at a later position: this mask is causal.")
        elif future == sum(rows - 1 for _ in maps) and not any((~m).any() for m in maps):
            facts.append("Every query may look everywhere.")
        else:
            facts.append(f"{_queries(future)} may look at later positions: this mask is not causal.")
        blind = sum(int((~m.diagonal() & m.any(0)).sum()) for m in maps)  # padding need not see itself
        if blind:
            facts.append(
                f"{_queries(blind)} may not look at {'its' if blind == 1 else 'their'} own position."
            )
    unseen = sum(int((~m.any(0)).sum()) for m in maps)
    if unseen:
        facts.append(
            f"{'1 key is' if unseen == 1 else f'{unseen} keys are'} hidden from every query, as padding is."
        )
    nowhere = sum(int((~m.any(1)).sum()) for m in maps)
    if nowhere:
        facts.append(f"{_queries(nowhere)} may look nowhere: softmax over nothing but -inf gives NaN there.")
    return facts


def _queries(count: int) -> str:
    return "1 query" if count == 1 else f"{count} queries"


def _check_names(names: Sequence[str] | None, count: int, what: str) -> None:
    if names is not None and len(names) != count:
        raise ConfigError(f"{what} must name {count} positions: got {len(names)} names; give one for each")
