"""A picture of the sinusoidal position encoding: one row a position, one column a dimension."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

from pathlib import Path

from headwise.files import write_atomically
from headwise.model.positions import sinusoidal_table
from headwise.see.fonts import require_matplotlib


def draw_positions(length: int, d_model: int, path: Path) -> None:
    """Draw the paper's position encoding as a heat map.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos(the same angle)
    Attention Is All You Need, section 3.5

    length: positions, from 0.
    Errors: MissingExtra without matplotlib; StorageError as write_atomically.
    """
    require_matplotlib("drawing the position encoding")
    from matplotlib.figure import Figure

    table = sinusoidal_table(length, d_model)  # [T, D]
    figure = Figure(figsize=(9, 5.4), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(table.numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_title(f"Sinusoidal position encoding: {length} positions, d_model = {d_model}", pad=12)
    axes.set_xlabel("dimension: even sin, odd cos; slower to the right")
    axes.set_ylabel("position")
    bar = figure.colorbar(image, ax=axes, ticks=[-1, 0, 1], shrink=0.9, pad=0.02)
    bar.set_label("value added to the embedding")
    write_atomically(path, lambda beside: figure.savefig(beside, format="png", dpi=150))
