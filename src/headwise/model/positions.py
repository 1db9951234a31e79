"""Where a token stands: attention alone cannot tell, so a vector for each position is added.

Schemes that act on the scores instead are in distance.py.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.errors import DataError


def sinusoidal_table(length: int, d_model: int, dtype: torch.dtype = torch.float32) -> Float[Tensor, "T D"]:
    """The paper's position encoding.

    PE(pos, 2i) = sin(pos / 10000^(2i / d_model)),  PE(pos, 2i + 1) = cos(the same angle)
    Attention Is All You Need, section 3.5

    The frequencies go through exp(-log), all in float64: sin of a large float32 angle is off by the
    angle's own rounding.
    Law: PE(pos + k) is PE(pos) turned by a rotation that depends on k alone.
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]  # [T, 1]
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position * torch.exp(even * (-math.log(10_000.0) / d_model))
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).to(dtype)  # [T, D]


class SinusoidalPositions(nn.Module):
    """Add the paper's sinusoids.

    Any length is accepted (the table grows when needed), but a model has only learned to use the
    lengths it was trained on: quality past them is not promised.
    """

    table: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(config.max_length, config.d_model), persistent=False)

    def forward(
        self, x: Float[Tensor, "B T D"], offset: int = 0, places: Int[Tensor, "#B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """x plus the encoding of positions offset, offset + 1, ..., or of `places` in their stead."""
        end = offset + x.size(1)
        if end > self.table.size(0):
            self.table = sinusoidal_table(2 * end, x.size(2)).to(self.table)  # rounded as at the start
        return x + self.table[slice(offset, end) if places is None else places].to(x.dtype)


class LearnedPositions(nn.Module):
    """Add a learned vector for each position: Attention Is All You Need, table 3, row E.

    There is nothing to add past `max_length`: a longer input is refused.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(config.max_length, config.d_model))

    def forward(
        self, x: Float[Tensor, "B T D"], offset: int = 0, places: Int[Tensor, "#B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """x plus the vectors of positions offset, offset + 1, ..., or of `places` in their stead."""
        end = offset + x.size(1)
        if end > self.table.size(0):
            raise DataError(
                f"learned positions reach max_length: got a sequence of {end} tokens, max_length="
                f"{self.table.size(0)}; shorten the input or train with a larger max_length"
            )
        return x + self.table[slice(offset, end) if places is None else places]


class NoPositions(nn.Module):
    """Add nothing: an encoder then cannot tell the order of its input, unless its attention can."""

    def forward(
        self, x: Float[Tensor, "B T D"], offset: int = 0, places: Int[Tensor, "#B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """x itself."""
        return x


def places_of(
    length: int, keep: Bool[Tensor, "B T"] | None, device: torch.device | None = None
) -> Int[Tensor, "#B T"]:
    """Where each token stands: 0, 1, ... from the first that is no padding.

    keep: True where a token is no padding; None: there is none. Padding in front stands at 0, too.
    """
    if keep is None:
        return torch.arange(length, device=device)[None]  # [1, T]
    return (keep.cumsum(-1) - 1).clamp(min=0)  # [B, T]


def make_positions(config: ModelConfig) -> SinusoidalPositions | LearnedPositions | NoPositions:
    """What is added to the embeddings; nothing for schemes that act inside attention (distance.py)."""
    schemes = {"sinusoidal": SinusoidalPositions, "learned": LearnedPositions}
    return schemes[config.positions](config) if config.positions in schemes else NoPositions()
