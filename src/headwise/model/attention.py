"""Scores, mask, softmax, mix: attention lives here and nowhere else."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.errors import ConfigError
from headwise.model.cache import KeyValues, Memory
from headwise.model.distance import Distances
from headwise.model.dropout import Dropout
from headwise.model.masks import keep_as_bias
from headwise.model.norm import make_norm
from headwise.model.rotary import turn

# On a CPU torch's fused kernel pays more for its blocks than short rows are worth: up to this many
# keys the explicit products are faster (benchmarks/attention.py measures where they cross; these are
# of torch 2.13 on one core of a Zen 4).
_FEW_KEYS = 24
_FEW_KEYS_BFLOAT16 = 192


def attend(
    q: Float[Tensor, "B H Tq Dh"],
    k: Float[Tensor, "B Hk Tk Dh"],
    v: Float[Tensor, "B Hk Tk Dh"],
    keep: Bool[Tensor, "#B #H #Tq Tk"] | None = None,
    dropout: Dropout | None = None,
    *,
    bias: Float[Tensor, "#B #H #Tq Tk"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H Tq Dh"]:
    """Mix the values by how well each query matches each key.

    softmax(q k^T / sqrt(d_head)) v        Attention Is All You Need, eq. 1

    keep: True where a query may look. A query with nowhere to look returns zeros, not NaN.
    dropout: of the weights. Runs whichever of the two ways is faster here: the results are equal but
    for rounding (and, with dropout, for what is dropped).
    bias: added to the scores, after their scaling. scale: in place of 1 / sqrt(d_head).
    Hk may divide H: neighbouring query heads then share the keys and values of one head
    (GQA: Training Generalized Multi-Query Transformer Models, section 2.2).
    Cost: 4 B H Tq Tk d_head operations; step by step it also holds B H Tq Tk weights.
    Law: permuting the key axis of k, v, keep and bias together changes nothing.
    """
    _check_keep(keep)
    has_dropout = dropout is not None and dropout.training and dropout.p > 0
    few = _FEW_KEYS_BFLOAT16 if k.dtype is torch.bfloat16 else _FEW_KEYS
    # the fused kernel of the CPU has no dropout: torch would run the products one by one itself
    prefers_products = has_dropout or k.size(2) <= few
    if q.device.type == "cpu" and prefers_products and not torch.compiler.is_compiling():
        return attend_with_weights(q, k, v, keep, dropout, bias=bias, scale=scale)[0]
    p = dropout.p if dropout is not None and dropout.training else 0.0
    mask = keep if bias is None else _joined(bias, keep, q.dtype)
    mixed = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=p, scale=scale, enable_gqa=k.size(1) != q.size(1)
    )  # [B, H, Tq, Dh]
    if bias is not None and keep is not None:  # the kernel cannot tell a mask from numbers
        mixed = mixed * keep.any(-1, keepdim=True)  # [B, H, Tq, Dh]
    return mixed


def attend_with_weights(
    q: Float[Tensor, "B H Tq Dh"],
    k: Float[Tensor, "B Hk Tk Dh"],
    v: Float[Tensor, "B Hk Tk Dh"],
    keep: Bool[Tensor, "#B #H #Tq Tk"] | None = None,
    dropout: Dropout | None = None,
    *,
    bias: Float[Tensor, "#B #H #Tq Tk"] | None = None,
    scale: float | None = None,
) -> tuple[Float[Tensor, "B H Tq Dh"], Float[Tensor, "B H Tq Tk"]]:
    """Attend step by step, and return the weights too (before dropout): see `attend`.

    Law: each row of the weights sums to 1, or to 0 where a query has nowhere to look.
    """
    _check_keep(keep)
    # scaling the queries is scaling the scores, on fewer numbers
    scores = _per_key_head(q * (1 / math.sqrt(q.size(-1)) if scale is None else scale), k)
    scores = scores @ k.transpose(-2, -1)
    scores = scores.view(q.size(0), q.size(1), q.size(2), k.size(2))  # [B, H, Tq, Tk]
    if keep is None:
        weights = (scores if bias is None else scores + bias).softmax(-1)  # [B, H, Tq, Tk]
    else:
        exact = torch.promote_types(scores.dtype, torch.float32)
        mask = keep_as_bias(keep, exact) if bias is None else _joined(bias, keep, exact)
        weights = (scores + mask).softmax(-1)  # [B, H, Tq, Tk]
        sees_something = keep.any(-1, keepdim=True)
        # reading the answer would break a compiled graph; multiplying always is right as well
        if torch.compiler.is_compiling() or not bool(sees_something.all()):
            weights = weights * sees_something  # [B, H, Tq, Tk]
    weights = weights.to(v.dtype)
    thinned = weights if dropout is None else dropout(weights)
    return (_per_key_head(thinned, v) @ v).view(q.shape), weights


def _per_key_head(
    x: Float[Tensor, "B H Tq last"], k: Float[Tensor, "B Hk Tk Dh"]
) -> Float[Tensor, "B Hk rows last"]:
    """The rows of all query heads that share a key head, one below the other: no key is repeated."""
    if x.size(1) == k.size(1):
        return x
    rows = x.size(1) // k.size(1) * x.size(2)
    return x.reshape(x.size(0), k.size(1), rows, x.size(3))  # [B, Hk, rows, last]


def _joined(bias: Tensor, keep: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Bias and mask as one tensor of numbers to add to the scores."""
    bias = bias.to(dtype)
    return bias if keep is None else bias.masked_fill(~keep, torch.finfo(dtype).min / 2)


def _check_keep(keep: Tensor | None) -> None:
    # torch's kernel would add numbers to the scores, silently
    if keep is not None and keep.dtype is not torch.bool:
        raise ConfigError(
            f"keep must be boolean, True = may look: got {keep.dtype}; keep.bool() if 1 means may look"
        )


class MultiHeadAttention(nn.Module):
    """Attend in several subspaces at once.

    Concat(head_1, ..., head_h) W_O,  head_i = Attention(Q W_Qi, K W_Ki, V W_Vi)
    Attention Is All You Need, section 3.2.2

    W_Q, W_K and W_V of all heads are the three row blocks of one matrix, so that self-attention
    projects with one product. Differs from the paper where the configuration asks for it: biases,
    fewer heads of keys and values (`num_kv_heads`), a norm on queries and keys (`qk_norm`, Query-Key
    Normalization for Transformers), no scaling (`scale_attention`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads = config.num_heads, config.key_value_heads
        self.d_head = config.width_head
        self.has_bias = config.attention_bias
        queries, keys = self.num_heads * self.d_head, self.num_kv_heads * self.d_head
        self.widths = queries, keys, keys  # rows of W_Q, W_K, W_V
        self.query_key_value = nn.Linear(config.d_model, sum(self.widths), bias=config.attention_bias)
        self.output = nn.Linear(queries, config.d_model, bias=config.has_attention_output_bias)
        self.query_norm = make_norm(config, self.d_head) if config.qk_norm else None
        self.key_norm = make_norm(config, self.d_head) if config.qk_norm else None
        self.scale = None if config.scale_attention else 1.0
        self.weights_dropout = Dropout(config.attention_dropout)

    def forward(
        self,
        x: Float[Tensor, "B Tq D"],
        keep: Bool[Tensor, "#B #H #Tq Tk"] | None = None,
        *,
        distances: Distances | None = None,
        cache: KeyValues | None = None,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "B Tq D"]:
        """Self-attention: queries, keys and values all come from x.

        distances: how far apart queries and keys stand, where the position scheme acts on scores.
        cache: keys and values of earlier positions; x's own are appended.
        maps: a list that receives the weights [B, H, Tq, Tk]; asking for them changes no result.
        """
        projected = self.query_key_value(x)  # [B, Tq, width]
        q, k, v = (self._split(part) for part in projected.split(self.widths, dim=-1))
        q, k = self._normed(q, k)
        bias = None
        if distances is not None:
            bias = distances.bias
            if distances.turns is not None:
                q, k = turn(q, distances.turns), turn(k, distances.turns)
        if cache is not None:
            k, v = cache.append(k, v)
        return self._mix(q, k, v, keep, maps, bias)

    def project_memory(self, memory: Float[Tensor, "B Ts D"]) -> Memory:
        """Keys and values of the encoder's output: computed once, then looked at by every step."""
        projected = self._project(memory, slice(self.widths[0], None))  # W_K and W_V lie below W_Q
        k, v = projected.chunk(2, dim=-1)
        k, v = self._split(k), self._split(v)
        return (k if self.key_norm is None else self.key_norm(k)), v

    def cross(
        self,
        x: Float[Tensor, "BK Tq D"],
        memory: Memory,
        keep: Bool[Tensor, "#B #H #Tq Tk"] | None = None,
        *,
        maps: list[Tensor] | None = None,
    ) -> Float[Tensor, "BK Tq D"]:
        """Cross-attention: queries come from x, keys and values from `project_memory`.

        x may hold K hypotheses for each row of the memory (rows of one sentence side by side): they
        become more queries of that sentence, so that its keys and values are stored once.
        """
        q = self._project(x, slice(None, self.widths[0]))
        k, v = memory
        num_queries = x.size(0) * x.size(1) // max(k.size(0), 1)  # of all hypotheses of a sentence
        q = self._split(q.view(k.size(0), num_queries, self.widths[0]))
        q = q if self.query_norm is None else self.query_norm(q)
        joined = self._mix(q, k, v, keep, maps)
        return joined.view(x.shape)

    def _mix(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        keep: Tensor | None,
        maps: list[Tensor] | None,
        bias: Tensor | None = None,
    ) -> Float[Tensor, "B Tq D"]:
        if maps is None:
            mixed = attend(q, k, v, keep, self.weights_dropout, bias=bias, scale=self.scale)  # [B, H, Tq, Dh]
        else:
            mixed, weights = attend_with_weights(
                q, k, v, keep, self.weights_dropout, bias=bias, scale=self.scale
            )
            maps.append(weights)
        joined = mixed.transpose(1, 2).flatten(2)  # [B, Tq, H*Dh]
        return self.output(joined)

    def _normed(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        if self.query_norm is None or self.key_norm is None:
            return q, k
        return self.query_norm(q), self.key_norm(k)

    def _project(self, x: Float[Tensor, "B T D"], rows: slice) -> Float[Tensor, "B T width"]:
        """Through some rows of the fused matrix."""
        fused = self.query_key_value
        return F.linear(x, fused.weight[rows], fused.bias[rows] if self.has_bias else None)

    def _split(self, x: Float[Tensor, "B T width"]) -> Float[Tensor, "B heads T Dh"]:
        heads = x.size(2) // self.d_head
        return x.view(x.size(0), x.size(1), heads, self.d_head).transpose(1, 2)  # [B, heads, T, Dh]
