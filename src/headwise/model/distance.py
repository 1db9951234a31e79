"""Position schemes that act inside attention: they tell queries how far away each key stands."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.alibi import Alibi
from headwise.model.relative import RelativeBias
from headwise.model.rotary import Rotary, Turns


@dataclass(frozen=True)
class Distances:
    """What a stack works out once for all of its blocks.

    turns: by which queries and keys are turned (rotary).
    bias: what is added to the scores (ALiBi, T5).
    """

    turns: Turns | None = None
    bias: Float[Tensor, "#B H Tq Tk"] | None = None


class DistancePositions(nn.Module):
    """Rotary, ALiBi or T5's relative positions; nothing for schemes that add to the embeddings."""

    def __init__(self, config: ModelConfig, *, is_causal: bool) -> None:
        super().__init__()
        self.rotary = Rotary(config) if config.positions == "rotary" else None
        self.bias: Alibi | RelativeBias | None = None
        if config.positions == "alibi":
            self.bias = Alibi(config)
        elif config.positions == "relative":
            self.bias = RelativeBias(config, is_causal=is_causal)

    def forward(self, places: Int[Tensor, "#B Tq"], num_keys: int, dtype: torch.dtype) -> Distances | None:
        """places: the queries' positions. The queries are the last of the num_keys keys."""
        if self.rotary is not None:
            return Distances(turns=self.rotary(places, dtype))
        if self.bias is None:
            return None
        keys = torch.arange(num_keys, device=places.device)
        queries = keys[num_keys - places.size(1) :]
        # padding in front moves queries and keys alike: their distance needs no places of its own
        return Distances(bias=self.bias(keys[None] - queries[:, None], dtype))
