"""Token ids to vectors, and where they stand."""

from __future__ import annotations

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.errors import ConfigError


class TokenEmbedding(nn.Module):
    """A vector for each token of the vocabulary.

    E[id] * sqrt(d_model)        Attention Is All You Need, section 3.4

    The factor lifts embeddings (started small, since the same matrix makes the logits) to the size
    of the position encoding that is added to them.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.vocab_size is None:
            raise ConfigError(
                "vocab_size must be set to build a model: got None; use the tokenizer's vocab_size"
            )
        self.table = nn.Embedding(config.vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0

    def forward(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Look the ids up."""
        return self.table(ids) * self.scale  # [B, T, D]
