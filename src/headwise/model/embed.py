"""Token ids and image patches to vectors, and what is done to them before the first block."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.errors import ConfigError, DataError
from headwise.model.dropout import Dropout
from headwise.model.norm import make_norm
from headwise.model.positions import make_positions


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


class InputEmbedding(nn.Module):
    """All that stands before the first block of a model with one stack: token, position, segment.

    BERT: Pre-training of Deep Bidirectional Transformers, figure 2
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.tokens = TokenEmbedding(config)
        self.positions = make_positions(config)
        self.segments = nn.Embedding(config.num_segments, config.d_model) if config.num_segments else None
        self.norm = make_norm(config) if config.embedding_norm else None
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        offset: int = 0,
        places: Int[Tensor, "#B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The sum of the three, normed where the configuration says so.

        segments: which part of the text each token belongs to; left out, all to the first.
        """
        x = self.positions(self.tokens(ids), offset, places)  # [B, T, D]
        if self.segments is not None:
            x = x + (self.segments.weight[0] if segments is None else self.segments(segments))  # [B, T, D]
        elif segments is not None:
            raise DataError("this model has no segments (num_segments=0): got segments; leave them out")
        return self.dropout(x if self.norm is None else self.norm(x))


class PatchEmbedding(nn.Module):
    """An image as a row of vectors: one product for each patch, a class token in front, positions.

    An Image is Worth 16x16 Words, eq. 1

    The paper's convolution with a stride of its own width is this product. The class token is there
    where the first position stands for the whole (pooling="first").
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        patches = config.patches
        self.size, self.shape = patches.size, (patches.channels, patches.height, patches.width)
        self.project = nn.Linear(patches.channels * patches.size**2, config.d_model)
        self.class_token = nn.Parameter(torch.empty(config.d_model)) if config.pooling == "first" else None
        self.positions = make_positions(config)
        self.norm = make_norm(config) if config.embedding_norm else None
        self.dropout = Dropout(config.dropout)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B T D"]:
        """Patches from left to right, then from top to bottom; the class token first."""
        if images.shape[1:] != self.shape:
            raise DataError(
                f"images must be [B, {', '.join(map(str, self.shape))}] (channels, height, width): "
                f"got {list(images.shape)}; resize them or set model.patches"
            )
        # channel, row and column of a pixel inside its patch, as a convolution's weight has them
        rows = F.unfold(images, self.size, stride=self.size).transpose(1, 2)  # [B, patches, pixels]
        x = self.project(rows)  # [B, patches, D]
        if self.class_token is not None:
            x = torch.cat((self.class_token.expand(x.size(0), 1, -1), x), dim=1)  # [B, T, D]
        x = self.positions(x)
        return self.dropout(x if self.norm is None else self.norm(x))
