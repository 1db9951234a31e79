"""A decoder-only model: GPT, LLaMA and their kin; text in, scores of each next token out."""

from __future__ import annotations

from typing import cast

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.errors import ConfigError, DataError
from headwise.model.cache import KeyValues, TextCache
from headwise.model.embed import InputEmbedding
from headwise.model.encoder import Encoder
from headwise.model.init import initialise
from headwise.model.masks import causal_keep, prefix_keep, window_keep
from headwise.model.positions import places_of


class LanguageModel(nn.Module):
    """Tokens in, next-token logits out: the encoder's blocks under a causal mask.

    Improving Language Understanding by Generative Pre-Training, section 3.1

    Laws: logits of a position depend on the tokens up to it, never on later ones, on other rows of the
    batch, or on padding (in front or behind).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.num_decoder_layers < 1 or config.num_encoder_layers > 0:
            raise ConfigError(
                "a language model has decoder layers alone: got num_encoder_layers="
                f"{config.num_encoder_layers}, num_decoder_layers={config.num_decoder_layers}; "
                "set num_encoder_layers=0 and num_decoder_layers to 1 or more"
            )
        self.config = config
        self.embedding = InputEmbedding(config)
        self.decoder = Encoder(config, is_causal=True)
        vocab_size = self.embedding.tokens.table.num_embeddings
        self.output = nn.Linear(config.d_model, vocab_size, bias=config.output_bias)
        if config.ties_output:
            self.output.weight = self.embedding.tokens.table.weight
        initialise(self, config)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        keep: Bool[Tensor, "B T"] | None = None,
        prefix: Int[Tensor, " B"] | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each position.

        keep: True where a token is no padding; left out, where it is not pad_id (all, if that is None).
        prefix: length of the part of each row that is read as a whole, without a mask between its tokens.
        maps: receives the attention weights, one tensor a block.
        """
        return self.logits(self.hidden(ids, keep, prefix, maps))

    def hidden(
        self,
        ids: Int[Tensor, "B T"],
        keep: Bool[Tensor, "B T"] | None = None,
        prefix: Int[Tensor, " B"] | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """The last vectors: a loss needs no logits of every position at once."""
        if keep is None and self.config.pad_id is not None:
            keep = ids != self.config.pad_id
        mask = self._causal(ids.size(1), ids.size(1), ids)  # [1, 1, T, T]
        if prefix is not None:
            if self.config.window is not None:
                raise DataError("a prefix is read as a whole, a window forbids it: leave one of them out")
            mask = prefix_keep(prefix, ids.size(1))  # [B, 1, T, T]
        if keep is not None:
            mask = mask & keep[:, None, None, :]  # [B, 1, T, T]
        places = places_of(ids.size(1), keep, ids.device)  # [#B, T]
        x = self.embedding(ids, 0, None if keep is None else places)  # [B, T, D]
        return self.decoder(x, mask, maps, places=places)

    def start(self) -> TextCache:
        """An empty memory for `step`."""
        return TextCache([KeyValues() for _ in self.decoder.blocks])

    def step(
        self, ids: Int[Tensor, "B T"], cache: TextCache, keep: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B V"]:
        """Append tokens (a prompt, then one at a time) and return the logits of what follows the last.

        keep: as in `forward`, of these tokens; padding stands in front. Nothing is taken from pad_id here.
        Law: equal to the last position of `forward` on everything appended so far.
        """
        before, length = cache.length, ids.size(1)
        known = cache.extend(ids.size(0), length, keep)
        mask = self._causal(length, before + length, ids) if length > 1 or self.config.window else None
        if known is not None:
            real = known[:, None, None, :]  # [B, 1, 1, Tk]
            mask = real if mask is None else mask & real
        places = places_of(before + length, known, ids.device)[:, before:]  # [#B, T]
        x = self.embedding(ids, before, None if known is None else places)  # [B, T, D]
        hidden = self.decoder(x, mask, places=places, caches=cache.blocks)  # [B, T, D]
        return self.logits(hidden[:, -1])  # [B, V]

    def logits(self, hidden: Float[Tensor, "*axes D"]) -> Float[Tensor, "*axes V"]:
        """Scores of every token of the vocabulary."""
        if self.config.scale_output:
            hidden = hidden * self.config.d_model**-0.5  # [..., D]
        return F.linear(hidden, self.output.weight, cast("Tensor | None", self.output.bias))

    def _causal(self, num_queries: int, num_keys: int, like: Tensor) -> Bool[Tensor, "1 1 Tq Tk"]:
        if self.config.window is None:
            return causal_keep(num_queries, num_keys, like.device)
        return window_keep(num_queries, num_keys, self.config.window, like.device)
