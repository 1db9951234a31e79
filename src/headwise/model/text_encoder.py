"""Encoder-only models of text: BERT and its kin, and what is put on top of them."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.errors import ConfigError
from headwise.model.dropout import Dropout
from headwise.model.embed import InputEmbedding
from headwise.model.encoder import Encoder
from headwise.model.feedforward import ACTIVATIONS
from headwise.model.init import initialise
from headwise.model.norm import make_norm
from headwise.model.positions import places_of


class TextEncoder(nn.Module):
    """Tokens in, a vector for each that knows its whole context out.

    BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding, section 3

    Laws: the vectors of a row do not depend on other rows of the batch or on padding (in front or behind).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.num_encoder_layers < 1 or config.num_decoder_layers > 0:
            raise ConfigError(
                "a text encoder has encoder layers alone: got num_encoder_layers="
                f"{config.num_encoder_layers}, num_decoder_layers={config.num_decoder_layers}; "
                "set num_decoder_layers=0 and num_encoder_layers to 1 or more"
            )
        self.config = config
        self.embedding = InputEmbedding(config)
        self.encoder = Encoder(config)
        initialise(self, config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The vector of each token.

        keep: True where a token is no padding; left out, where it is not pad_id (all, if that is None).
        segments: which part of the text each token belongs to, where the model has segments.
        """
        keep = self.kept(ids) if keep is None else keep
        places = places_of(ids.size(1), keep, ids.device)  # [#B, T]
        x = self.embedding(ids, 0, None if keep is None else places, segments)  # [B, T, D]
        return self.encoder(x, None if keep is None else keep[:, None, None, :], maps, places=places)

    def kept(self, ids: Int[Tensor, "B T"]) -> Bool[Tensor, "B T"] | None:
        """True where a token is no padding; None where no id means padding."""
        return None if self.config.pad_id is None else ids != self.config.pad_id

    def sentence_vectors(
        self, ids: Int[Tensor, "B T"], keep: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B D"]:
        """The mean over a text's tokens, of length 1: the product of two is their cosine similarity.

        Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks, section 3
        """
        keep = self.kept(ids) if keep is None else keep
        return F.normalize(mean_over(self(ids, keep), keep), dim=-1)  # [B, D]


def mean_over(x: Float[Tensor, "B T D"], keep: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B D"]:
    """The mean over the positions that are no padding; zeros where all are."""
    if keep is None:
        return x.mean(1)
    weight = keep.to(x.dtype)[..., None]  # [B, T, 1]
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1)  # [B, D]


class MaskedLanguageModel(nn.Module):
    """Guess the tokens that were masked, from both sides.

    BERT, section 3.1, task 1. The head (of the published code): a layer, its activation (the feed-forward
    layer's: GELU in BERT), a norm, then the embedding matrix.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.body = TextEncoder(config)
        self.transform = nn.Linear(config.d_model, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = make_norm(config)
        vocab_size = self.body.embedding.tokens.table.num_embeddings
        self.output = nn.Linear(config.d_model, vocab_size, bias=config.output_bias)
        if config.ties_output:
            self.output.weight = self.body.embedding.tokens.table.weight
        initialise(self, config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token that belongs at each position."""
        return self.logits(self.body(ids, keep, segments, maps))

    def logits(self, hidden: Float[Tensor, "*axes D"]) -> Float[Tensor, "*axes V"]:
        """Scores of every token, from the encoder's vectors."""
        hidden = self.norm(self.activation(self.transform(hidden)))  # [..., D]
        return F.linear(hidden, self.output.weight, cast("Tensor | None", self.output.bias))


class TextClassifier(nn.Module):
    """A class for each text.

    pooling "first": tanh(W x_1), BERT, section 4.1 (and its published code); "mean": of all its tokens.
    DistilBERT's code has ReLU for tanh (`pooling_activation`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.body = TextEncoder(config)
        self.pool = nn.Linear(config.d_model, config.d_model)
        self.bend = torch.tanh if config.pooling_activation == "tanh" else F.relu
        self.dropout = Dropout(config.dropout)
        self.output = nn.Linear(config.d_model, config.classes_told_apart)
        initialise(self, config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        keep: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Logits of the classes."""
        keep = self.body.kept(ids) if keep is None else keep
        hidden = self.body(ids, keep, segments, maps)  # [B, T, D]
        if self.config.pooling == "mean":
            whole = mean_over(hidden, keep)  # [B, D]
        elif keep is None:
            whole = hidden[:, 0]  # [B, D]
        else:  # the first that is no padding
            whole = hidden[torch.arange(len(hidden), device=ids.device), keep.int().argmax(1)]  # [B, D]
        return self.output(self.dropout(self.bend(self.pool(whole))))  # [B, C]
