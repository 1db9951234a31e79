"""T5's relative positions: a learned number for each head and each class of distance."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.config import ModelConfig


def distance_buckets(
    distance: Int[Tensor, "Tq Tk"], buckets: int, farthest: int, *, is_causal: bool
) -> Int[Tensor, "Tq Tk"]:
    """The class of each distance: near ones one each, far ones by their logarithm, then all in the last.

    Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, section 2.1

    distance: key position minus query position. is_causal: what lies ahead needs no classes of its own.
    """
    ahead = torch.zeros_like(distance)
    if is_causal:
        steps = (-distance).clamp(min=0)  # [Tq, Tk]
    else:
        buckets //= 2
        ahead, steps = (distance > 0) * buckets, distance.abs()
    near = buckets // 2
    # float32 as in the public weights' code: where a logarithm meets a border, rounding decides
    ratio = (steps.clamp(min=1).float() / near).log() / math.log(farthest / near)
    far = near + (ratio * (buckets - near)).long()
    return ahead + torch.where(steps < near, steps, far.clamp(max=buckets - 1))


class RelativeBias(nn.Module):
    """Add a learned number to each head's scores, by the class of the distance.

    One table for all blocks of a stack. Law: the bias depends on the distance alone.
    """

    def __init__(self, config: ModelConfig, *, is_causal: bool) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(config.relative_buckets, config.num_heads))
        self.farthest, self.is_causal = config.relative_distance, is_causal

    def forward(self, distance: Int[Tensor, "Tq Tk"], dtype: torch.dtype) -> Float[Tensor, "1 H Tq Tk"]:
        """distance: key position minus query position."""
        bucket = distance_buckets(distance, self.table.size(0), self.farthest, is_causal=self.is_causal)
        return self.table[bucket].permute(2, 0, 1)[None].to(dtype)  # [1, H, Tq, Tk]
