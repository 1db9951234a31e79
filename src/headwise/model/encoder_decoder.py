"""The Transformer of *Attention Is All You Need*: read from top to bottom beside figure 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.errors import ConfigError, DataError
from headwise.model.cache import DecoderCache
from headwise.model.decoder import Decoder
from headwise.model.dropout import Dropout
from headwise.model.embed import TokenEmbedding
from headwise.model.encoder import Encoder
from headwise.model.init import initialise
from headwise.model.masks import causal_keep, padding_keep, window_keep
from headwise.model.norm import make_norm
from headwise.model.positions import make_positions


@dataclass
class AttentionMaps:
    """Attention weights, one tensor a block: a list each for encoder, decoder and cross-attention."""

    encoder: list[Float[Tensor, "B H Ts Ts"]] = field(default_factory=list[Tensor])
    decoder: list[Float[Tensor, "B H Tt Tt"]] = field(default_factory=list[Tensor])
    cross: list[Float[Tensor, "B H Tt Ts"]] = field(default_factory=list[Tensor])


class EncoderDecoder(nn.Module):
    """Source tokens in, next-token logits out.

    Laws: logits of a position depend on the source and on target tokens up to it, never on later
    ones, on other rows of the batch, or on what stands at padding.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.num_encoder_layers < 1 or config.num_decoder_layers < 1:
            raise ConfigError(
                "an encoder-decoder needs layers of both kinds: got num_encoder_layers="
                f"{config.num_encoder_layers}, num_decoder_layers={config.num_decoder_layers}; "
                "set both to 1 or more"
            )
        if config.pad_id is None:
            raise ConfigError("an encoder-decoder pads its sources: got pad_id=None; set pad_id")
        if config.parallel_blocks:
            raise ConfigError(
                "parallel_blocks is for models of one stack (a decoder block looks at the source between "
                "its two halves): got an encoder-decoder; leave it out"
            )
        self.config, self.pad_id = config, config.pad_id
        self.source_embedding = TokenEmbedding(config)
        self.target_embedding = self.source_embedding if config.tie_embeddings else TokenEmbedding(config)
        self.source_positions = make_positions(config)
        self.target_positions = (
            make_positions(config) if config.positions == "learned" else self.source_positions
        )
        self.source_norm = make_norm(config) if config.embedding_norm else None
        self.target_norm = make_norm(config) if config.embedding_norm else None
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        vocab_size = self.target_embedding.table.num_embeddings
        self.output = nn.Linear(config.d_model, vocab_size, bias=config.output_bias)
        if config.ties_output:
            self.output.weight = self.target_embedding.table.weight
        initialise(self, config)

    def forward(
        self, source: Int[Tensor, "B Ts"], target: Int[Tensor, "B Tt"], maps: AttentionMaps | None = None
    ) -> Float[Tensor, "B Tt V"]:
        """Logits of the token after each target position.

        source, target: token ids, padded with pad_id; target starts with the begin mark and is not
        shifted here (train/batch.py does that, and nothing else).
        maps: receives every attention weight.
        """
        return self.logits(self.hidden(source, target, maps))

    def hidden(
        self, source: Int[Tensor, "B Ts"], target: Int[Tensor, "B Tt"], maps: AttentionMaps | None = None
    ) -> Float[Tensor, "B Tt D"]:
        """The decoder's last vectors: the loss needs no logits of every position at once."""
        if source.size(0) != target.size(0):  # cross-attention would take more rows for hypotheses
            raise DataError(
                f"each source needs its target: got {source.size(0)} sources and {target.size(0)} targets; "
                "give as many rows of both"
            )
        source_keep = padding_keep(source, self.pad_id)  # [B, 1, 1, Ts]
        memory = self.encode(source, source_keep, maps)  # [B, Ts, D]
        target_keep = self._causal(target.size(1), target.size(1), target.device)  # [1, 1, Tt, Tt]
        is_real = padding_keep(target, self.pad_id)  # [B, 1, 1, Tt]
        # a target begins with its begin mark, which in T5 and Marian is the padding's id
        is_real[..., :1] = True
        target_keep = target_keep & is_real  # [B, 1, Tt, Tt]
        return self.decoder(
            self._embed_target(target, 0),
            self.decoder.project_memory(memory),
            target_keep,
            source_keep,
            self_maps=None if maps is None else maps.decoder,
            cross_maps=None if maps is None else maps.cross,
        )

    def encode(
        self,
        source: Int[Tensor, "B Ts"],
        keep: Bool[Tensor, "B 1 1 Ts"],
        maps: AttentionMaps | None = None,
    ) -> Float[Tensor, "B Ts D"]:
        """The source's positions, each knowing its context."""
        x = self.source_positions(self.source_embedding(source))  # [B, Ts, D]
        x = self.dropout(x if self.source_norm is None else self.source_norm(x))
        return self.encoder(x, keep, None if maps is None else maps.encoder)

    def start(self, source: Int[Tensor, "B Ts"]) -> DecoderCache:
        """Encode the source and remember what every decoding step needs of it."""
        keep = padding_keep(source, self.pad_id)  # [B, 1, 1, Ts]
        return DecoderCache(self.decoder.project_memory(self.encode(source, keep)), keep)

    def step(self, target: Int[Tensor, "BK Tt"], cache: DecoderCache) -> Float[Tensor, "BK V"]:
        """Append target tokens (one or more, no padding) and return the logits of what follows.

        Rows are hypotheses, those of a sentence side by side. The cache advances by Tt positions.
        Law: equal to the last position of `forward` on everything appended so far.
        """
        x = self._embed_target(target, cache.length)  # [BK, Tt, D]
        keep = None  # a single query is the last: without a window it may look everywhere
        if target.size(1) > 1 or self.config.window is not None:
            keep = self._causal(target.size(1), cache.length + target.size(1), target.device)
        hidden = self.decoder(x, cache.memory, keep, cache.memory_keep, cache.self_attention)
        return self.logits(hidden[:, -1])  # [BK, V]

    def logits(self, hidden: Float[Tensor, "*axes D"]) -> Float[Tensor, "*axes V"]:
        """Scores of every token of the vocabulary: the linear layer before the softmax of figure 1."""
        if self.config.scale_output:
            hidden = hidden * self.config.d_model**-0.5  # [..., D]
        return F.linear(hidden, self.output.weight, cast("Tensor | None", self.output.bias))

    def _causal(self, num_queries: int, num_keys: int, device: torch.device) -> Bool[Tensor, "1 1 Tq Tk"]:
        if self.config.window is None:
            return causal_keep(num_queries, num_keys=num_keys, device=device)
        return window_keep(num_queries, num_keys, self.config.window, device)

    def _embed_target(self, target: Tensor, offset: int) -> Float[Tensor, "BK Tt D"]:
        x = self.target_positions(self.target_embedding(target), offset)  # [BK, Tt, D]
        return self.dropout(x if self.target_norm is None else self.target_norm(x))
