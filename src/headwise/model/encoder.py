"""The encoder: a stack of blocks in which every position looks at every other that its mask allows."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.block import EncoderBlock, ParallelBlock
from headwise.model.cache import KeyValues
from headwise.model.distance import DistancePositions
from headwise.model.norm import make_norm
from headwise.model.positions import places_of


class Encoder(nn.Module):
    """N blocks without cross-attention; with pre-norm a last norm, since nothing else would bound the sum.

    is_causal: the stack of a decoder-only model, whose mask lets positions look back alone. It has
    num_decoder_layers blocks, and the positions that depend on the direction know of it.
    """

    def __init__(self, config: ModelConfig, *, is_causal: bool = False) -> None:
        super().__init__()
        num_layers = config.num_decoder_layers if is_causal else config.num_encoder_layers
        kind = ParallelBlock if config.parallel_blocks else EncoderBlock
        self.distance_positions = DistancePositions(config, is_causal=is_causal)
        self.blocks = nn.ModuleList(kind(config) for _ in range(num_layers))
        self.final_norm = make_norm(config) if config.norm == "pre" else None

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        keep: Bool[Tensor, "#B 1 #T Tk"] | None = None,
        maps: list[Tensor] | None = None,
        *,
        places: Int[Tensor, "#B T"] | None = None,
        caches: list[KeyValues] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Embedded positions to positions that know their context.

        places: where each position stands, if not at 0, 1, ...; caches: of what stands before x.
        """
        before = caches[0].length if caches else 0
        num_keys = before + x.size(1)
        if places is None:
            places = places_of(num_keys, None, x.device)[:, before:]  # [1, T]
        distances = self.distance_positions(places, num_keys, x.dtype)
        for n, block in enumerate(self.blocks):
            x = block(x, keep, maps, distances, None if caches is None else caches[n])
        return x if self.final_norm is None else self.final_norm(x)
