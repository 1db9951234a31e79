"""Encoder and decoder blocks: sub-layers, residual connections, and where the norm goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model.attention import MultiHeadAttention
from headwise.model.cache import KeyValues, Memory
from headwise.model.distance import Distances
from headwise.model.dropout import Dropout
from headwise.model.feedforward import make_feedforward
from headwise.model.norm import make_norm


class Residual(nn.Module):
    """Add & Norm around one sub-layer.

    post: norm(x + dropout(sublayer(x)))        Attention Is All You Need, section 5.4
    pre:  x + dropout(sublayer(norm(x)))        On Layer Normalization in the Transformer Architecture, fig. 1

    Each sub-layer has a Residual of its own, so no two share a norm.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)
        self.is_pre = config.norm == "pre"

    def forward(
        self, x: Float[Tensor, "B T D"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "B T D"]:
        """x with the sub-layer's contribution added."""
        if self.is_pre:
            return self.dropout.add(x, sublayer(self.norm(x)))
        return self.norm(self.dropout.add(x, sublayer(x)))


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward: Attention Is All You Need, section 3.1, left of figure 1.

    Under a causal mask it is the whole block of a decoder-only model, which has no source to look at.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.after_self_attention = Residual(config)
        self.feedforward = make_feedforward(config)
        self.after_feedforward = Residual(config)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        keep: Bool[Tensor, "#B 1 #T Tk"] | None = None,
        maps: list[Tensor] | None = None,
        distances: Distances | None = None,
        cache: KeyValues | None = None,
    ) -> Float[Tensor, "B T D"]:
        """One round of looking around and thinking it over."""
        look = partial(self.self_attention, keep=keep, distances=distances, cache=cache, maps=maps)
        x = self.after_self_attention(x, look)
        return self.after_feedforward(x, self.feedforward)


class ParallelBlock(nn.Module):
    """Self-attention and feed-forward side by side, each with its norm, on the same input.

    x + attention(norm_1(x)) + feedforward(norm_2(x))        GPT-NeoX-20B, section 2.1
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.attention_norm = make_norm(config)
        self.feedforward = make_feedforward(config)
        self.feedforward_norm = make_norm(config)
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        keep: Bool[Tensor, "#B 1 #T Tk"] | None = None,
        maps: list[Tensor] | None = None,
        distances: Distances | None = None,
        cache: KeyValues | None = None,
    ) -> Float[Tensor, "B T D"]:
        """One round, in which neither half knows what the other finds."""
        looked = self.self_attention(
            self.attention_norm(x), keep, distances=distances, cache=cache, maps=maps
        )  # [B, T, D]
        thought = self.feedforward(self.feedforward_norm(x))  # [B, T, D]
        return self.dropout.add(self.dropout.add(x, looked), thought)


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention, feed-forward: section 3.1, right of figure 1."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.after_self_attention = Residual(config)
        self.cross_attention = MultiHeadAttention(config)
        self.after_cross_attention = Residual(config)
        self.feedforward = make_feedforward(config)
        self.after_feedforward = Residual(config)

    def forward(
        self,
        x: Float[Tensor, "BK Tt D"],
        memory: Memory,
        keep: Bool[Tensor, "#BK 1 #Tt Tk"] | None = None,
        memory_keep: Bool[Tensor, "#B 1 1 Ts"] | None = None,
        cache: KeyValues | None = None,
        self_maps: list[Tensor] | None = None,
        cross_maps: list[Tensor] | None = None,
        distances: Distances | None = None,
    ) -> Float[Tensor, "BK Tt D"]:
        """One round: look back, look at the source, think it over.

        memory: keys and values from `cross_attention.project_memory`.
        """
        look_back = partial(self.self_attention, keep=keep, distances=distances, cache=cache, maps=self_maps)
        look_across = partial(self.cross_attention.cross, memory=memory, keep=memory_keep, maps=cross_maps)
        x = self.after_self_attention(x, look_back)
        x = self.after_cross_attention(x, look_across)
        return self.after_feedforward(x, self.feedforward)
