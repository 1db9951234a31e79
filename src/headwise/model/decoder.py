"""The decoder: a stack of blocks that looks back at what is written and across at the source."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.block import DecoderBlock
from headwise.model.cache import KeyValues, Memory
from headwise.model.distance import DistancePositions
from headwise.model.norm import make_norm
from headwise.model.positions import places_of


class Decoder(nn.Module):
    """N decoder blocks; with pre-norm a last norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.distance_positions = DistancePositions(config, is_causal=True)
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.num_decoder_layers))
        self.final_norm = make_norm(config) if config.norm == "pre" else None

    def project_memory(self, memory: Float[Tensor, "B Ts D"]) -> list[Memory]:
        """Each block's keys and values of the encoder's output."""
        return [block.cross_attention.project_memory(memory) for block in self._blocks()]

    def forward(
        self,
        x: Float[Tensor, "BK Tt D"],
        memory: list[Memory],
        keep: Bool[Tensor, "#BK 1 #Tt Tk"] | None = None,
        memory_keep: Bool[Tensor, "#B 1 1 Ts"] | None = None,
        caches: list[KeyValues] | None = None,
        self_maps: list[Tensor] | None = None,
        cross_maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "BK Tt D"]:
        """Embedded target positions to positions ready to name the next token."""
        offset = caches[0].length if caches else 0
        places = places_of(offset + x.size(1), None, x.device)[:, offset:]  # [1, Tt]
        distances = self.distance_positions(places, offset + x.size(1), x.dtype)
        for n, block in enumerate(self._blocks()):
            cache = None if caches is None else caches[n]
            x = block(x, memory[n], keep, memory_keep, cache, self_maps, cross_maps, distances)
        return x if self.final_norm is None else self.final_norm(x)

    def _blocks(self) -> list[Any]:
        return list(self.blocks)  # a block that torch.compile has wrapped is one too
