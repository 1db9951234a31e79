"""The encoder: a stack of blocks that lets every position look at every other."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.block import EncoderBlock
from headwise.model.norm import LayerNorm


class Encoder(nn.Module):
    """N encoder blocks; with pre-norm a last norm, since nothing else would bound the sum."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.num_encoder_layers))
        self.final_norm = LayerNorm(config.d_model, config.norm_eps) if config.norm == "pre" else None

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        keep: Bool[Tensor, "#B 1 #T T"] | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Embedded positions to positions that know their context."""
        for block in self.blocks:
            x = block(x, keep, maps)
        return x if self.final_norm is None else self.final_norm(x)
