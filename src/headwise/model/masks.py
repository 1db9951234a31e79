"""Who may look at whom: boolean `keep` masks, True = may look, that broadcast to [B, H, Tq, Tk]."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def padding_keep(ids: Int[Tensor, "B T"], pad_id: int) -> Bool[Tensor, "B 1 1 T"]:
    """Every query may look at every position that is not padding."""
    return (ids != pad_id)[:, None, None, :]  # [B, 1, 1, T]


def causal_keep(
    num_queries: int, num_keys: int | None = None, device: torch.device | None = None
) -> Bool[Tensor, "1 1 Tq Tk"]:
    """Each position may look at itself and at what came before; never at what follows.

    Attention Is All You Need, section 3.2.3. With fewer queries than keys the queries are the last
    positions, as in cached decoding.
    """
    num_keys = num_queries if num_keys is None else num_keys
    square = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)  # [Tq, Tk]
    return square.tril(num_keys - num_queries)[None, None]  # [1, 1, Tq, Tk]


def window_keep(
    num_queries: int, num_keys: int | None = None, window: int = 1, device: torch.device | None = None
) -> Bool[Tensor, "1 1 Tq Tk"]:
    """Causal, and at most `window` positions back, the query's own counted.

    Mistral 7B, section 2: k layers see k * window positions. Law: a window of Tk is `causal_keep`.
    """
    num_keys = num_queries if num_keys is None else num_keys
    square = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device)  # [Tq, Tk]
    own = num_keys - num_queries  # the first query's own column
    return (square.tril(own) & square.triu(own - window + 1))[None, None]  # [1, 1, Tq, Tk]


def prefix_keep(prefix: Int[Tensor, " B"], length: int) -> Bool[Tensor, "B 1 T T"]:
    """Causal, but every position may look at the whole prefix: its tokens are read, not written.

    Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, figure 3, right

    prefix: positions of each row that belong to it. Law: of length 0 or 1 it is `causal_keep`.
    """
    keys = torch.arange(length, device=prefix.device)
    inside = keys < prefix[:, None]  # [B, T]
    return inside[:, None, None, :] | causal_keep(length, device=prefix.device)


def keep_as_bias(
    keep: Bool[Tensor, "#B #H #Tq Tk"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "#B #H #Tq Tk"]:
    """The same mask as numbers to add to the scores: 0 where a query may look, else very negative.

    Half of the lowest number rather than -inf: softmax still gives an exact 0 beside any allowed
    score, and a row with nowhere to look has no NaN, forward or backward.
    """
    return torch.zeros_like(keep, dtype=dtype).masked_fill_(~keep, torch.finfo(dtype).min / 2)


def weights_outside(
    weights: Float[Tensor, "B H Tq Tk"], keep: Bool[Tensor, "#B #H #Tq Tk"]
) -> Float[Tensor, ""]:
    """The largest attention weight where no query may look; 0 when the mask holds everywhere."""
    return weights.masked_fill(keep, 0).abs().amax()
