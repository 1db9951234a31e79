"""ALiBi: the farther a key, the lower its score; nothing to learn, and no last position."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.config import ModelConfig


def alibi_slopes(num_heads: int) -> Float[Tensor, " H"]:
    """How fast each head's scores fall with distance: a geometric series.

    2^(-8 i / n), i = 1 ... n        Train Short, Test Long, section 3

    For n no power of two, those of the power below and every second one of the power above (the
    authors' code).
    """
    below = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * i / below) for i in range(1, below + 1)]
    slopes += [2 ** (-8 * i / (2 * below)) for i in range(1, 2 * (num_heads - below), 2)]
    return torch.tensor(slopes, dtype=torch.float64)  # [H]


class Alibi(nn.Module):
    """Subtract slope * distance from each head's scores, forwards and backwards alike.

    Law: the bias depends on the distance alone.
    """

    slopes: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(config.num_heads), persistent=False)

    def forward(self, distance: Int[Tensor, "Tq Tk"], dtype: torch.dtype) -> Float[Tensor, "1 H Tq Tk"]:
        """distance: key position minus query position."""
        return (-self.slopes[:, None, None] * distance.abs())[None].to(dtype)  # [1, H, Tq, Tk]
