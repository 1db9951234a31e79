"""How alike two positions are by their distance: what a query can tell of how far away a key stands."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.see.drawing import DASHES, LINES, Drawing, sheet, whole_numbers
from headwise.see.order import Order, order_of

_MOST_HEADS = 6  # curves that can be told apart


def draw_similarity(
    given: Float[Tensor, "T D"] | ModelConfig | nn.Module, length: int | None = None
) -> Drawing:
    """Draw the cosine between the encodings of two positions, by how far apart they stand.

    The line is the mean over all pairs at that distance, the band the least and the most of them: where the
    band is thin, distance alone decides. ALiBi and T5's relative positions show what each head adds to the
    score.
    given, length, errors: as draw_positions.
    """
    order = order_of(given, length)
    if order.bias is not None:
        return _biases(order)
    mean, least, most = similarity_by_distance(order)
    reach = len(mean) - 1
    spread = float((most - least).max())
    caption = (
        f"From {float(mean[0]):.2f} at distance 0 to {float(mean[min(10, reach)]):.2f} at {min(10, reach)} "
        "and "
        f"{float(mean[reach]):.2f} at {reach}. "
    )
    caption += (
        "The band has no width: the similarity depends on the distance alone, wherever the pair stands."
        if spread < 1e-3
        else f"The band is up to {spread:.2f} wide: the same distance looks different in different places."
    )
    if float(mean[0]) < 0.999:
        caption += " Some rows are all zero: they say nothing, and count as like no other."
    elif float(mean[1:].abs().max()) < 0.3:
        caption += " No position resembles any other: the table says where a token is, not what is near."
    with sheet(7.5, 4.2, caption, "drawing similarity by distance") as (figure, [[axes]]):
        distances = range(len(mean))
        axes.fill_between(distances, least.numpy(), most.numpy(), color=LINES[0], alpha=0.2, linewidth=0)
        axes.plot(distances, mean.numpy(), color=LINES[0])
        axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        axes.set_title(f"{order.name}: similarity by distance")
        axes.set_xlabel("distance (tokens)")
        axes.set_ylabel("cosine of the two encodings")
        axes.set_xlim(0, max(reach, 1))
        whole_numbers(axes.xaxis)
    return Drawing(figure, caption)


def similarity_by_distance(order: Order) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, least and most cosine of the rows of a table, at distance 0, 1, ..., T - 1.

    Law: for sinusoids the three are equal, as PE(pos) . PE(pos + k) = sum of cos(w k) over the frequencies.
    """
    assert order.table is not None, "only a table has rows to compare"
    table = order.table.double()
    unit = F.normalize(table, dim=-1)
    cosines = unit @ unit.mT  # [T, T]
    parts = [cosines.diagonal(k) for k in range(len(table))]
    return (
        torch.stack([part.mean() for part in parts]),
        torch.stack([part.min() for part in parts]),
        torch.stack([part.max() for part in parts]),
    )


def _biases(order: Order) -> Drawing:
    bias = order.bias
    assert bias is not None, "an order has a table or a bias"
    reach = bias.size(1) // 2
    heads = bias[:_MOST_HEADS]
    caption = (
        "What each head adds to the score of a key before softmax, by where the key stands; 1 more is e = "
        "2.7 times "
        "the weight. A steep line looks near, a flat one far."
    )
    if len(heads) < len(bias):
        caption += f" The first {len(heads)} of {len(bias)} heads."
    with sheet(7.5, 4.2, caption, "drawing similarity by distance") as (figure, [[axes]]):
        for number, row in enumerate(heads):
            axes.plot(
                range(-reach, reach + 1), row.numpy(), color=LINES[number], linestyle=DASHES[number],
                label=f"head {number}",
            )  # fmt: skip
        axes.set_title(f"{order.name}: bias by distance")
        axes.set_xlabel("distance (tokens): key position minus query position")
        axes.set_ylabel("added to the score")
        axes.legend()
    return Drawing(figure, caption)
