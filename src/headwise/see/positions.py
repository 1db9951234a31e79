"""A picture of a position encoding: one row a position, one column a dimension; or one row a head."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.see.drawing import SIGNED, Drawing, sheet, whole_numbers
from headwise.see.order import Order, order_of


def draw_positions(
    given: Float[Tensor, "T D"] | ModelConfig | nn.Module, length: int | None = None
) -> Drawing:
    """Draw how positions are told apart, as a heat map.

    given: a table [T, D] of vectors added to the embeddings, an nn.Embedding, a model of ours, or a
    configuration whose positions need no weights. Rotary positions show the cosine and sine of each pair's
    angle; ALiBi and T5's relative positions what each head adds to the score by distance. length: positions
    from 0 (default: all of a table, else 64).
    Errors: ConfigError where there is nothing to draw; MissingExtra without matplotlib.
    """
    order = order_of(given, length)
    return _biases(order) if order.bias is not None else _table(order)


def _table(order: Order) -> Drawing:
    table = order.table
    assert table is not None, "an order has a table or a bias"
    reach = float(table.abs().max())
    most = reach or 1.0
    caption = (
        "Each row is what is added to the embedding at one position; two rows that look alike cannot be told "
        "apart. "
        f"Values reach {reach:.3g}. "
    )
    if order.name.startswith("Sinusoidal"):
        caption += "Left columns change with every position, right ones hardly at all: together they count."
    elif order.name.startswith("Rotary"):
        caption = (
            "Each row is by how much one position turns each pair of coordinates of a query or key: the left "
            "of each "
            "half turns fast, the right slowly. A product of two turned vectors depends on their distance "
            "alone."
        )
    else:
        caption += _nearest(table)
    title = f"{order.name}: {table.size(0)} positions, {table.size(1)} dimensions"
    with sheet(9, 4.9, caption, "drawing the position encoding") as (figure, [[axes]]):
        image = axes.imshow(
            table.numpy(), cmap=SIGNED, vmin=-most, vmax=most, aspect="auto", interpolation="nearest"
        )
        axes.set_title(title)
        axes.set_xlabel(order.columns)
        axes.set_ylabel("position (tokens)")
        whole_numbers(axes.yaxis)
        whole_numbers(axes.xaxis)
        bar = figure.colorbar(image, ax=axes, ticks=[-most, 0, most], format="%.2g", pad=0.02)
        bar.set_label("value" if order.name.startswith("Rotary") else "value added to the embedding")
    return Drawing(figure, caption)


def _nearest(table: Tensor) -> str:
    """Are two positions the same, and is the table anything but noise?"""
    same = int((table[1:] - table[:-1]).abs().amax(-1).eq(0).sum())
    if same:
        return f"{same} neighbouring rows are equal: these positions are not told apart."
    unit = F.normalize(table, dim=-1)
    near = float((unit[1:] * unit[:-1]).sum(-1).mean())
    return (
        f"Neighbouring rows have a cosine of {near:.2f} on average: near 0 is what random tables start with, "
        "near 1 "
        "a smooth table."
    )


def _biases(order: Order) -> Drawing:
    bias = order.bias
    assert bias is not None, "an order has a table or a bias"
    most = float(bias.abs().max()) or 1.0
    reach = bias.size(1) // 2
    caption = (
        "Each row is a head: what it adds to the score of a key so far from the query, before softmax. White "
        "adds "
        "nothing; a strong colour on one side means that the head looks to the other."
    )
    with sheet(9, max(2.2, 0.28 * bias.size(0) + 1.4), caption, "drawing the position encoding") as (
        figure,
        [[axes]],
    ):
        image = axes.imshow(
            bias.numpy(), cmap=SIGNED, vmin=-most, vmax=most, aspect="auto", interpolation="nearest",
            extent=(-reach - 0.5, reach + 0.5, bias.size(0) - 0.5, -0.5),
        )  # fmt: skip
        axes.set_title(f"{order.name}: {bias.size(0)} heads, distances up to {reach}")
        axes.set_xlabel("distance (tokens): key position minus query position")
        axes.set_ylabel("head")
        whole_numbers(axes.yaxis)
        bar = figure.colorbar(image, ax=axes, ticks=[-most, 0, most], format="%.2g", pad=0.02)
        bar.set_label("added to the score")
    return Drawing(figure, caption)
