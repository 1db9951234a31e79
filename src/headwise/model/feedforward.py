"""The position-wise layer: the same two products at every position, by themselves."""

from __future__ import annotations

from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.model.dropout import Dropout

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),  # as GPT-2 computes it
    "silu": F.silu,
}


class FeedForward(nn.Module):
    """Widen, bend, narrow.

    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2        Attention Is All You Need, eq. 2

    Differs from the paper: GELU (Gaussian Error Linear Units, eq. 2) or SiLU on request, and dropout
    between the two products (`feedforward_dropout`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.wide = nn.Linear(config.d_model, config.width_ff, bias=config.feedforward_bias)
        self.narrow = nn.Linear(config.width_ff, config.d_model, bias=config.feedforward_bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.feedforward_dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Every position through the same two layers."""
        bent = self.dropout(self.activation(self.wide(x)))  # [B, T, F]
        return self.narrow(bent)


class GatedFeedForward(nn.Module):
    """Widen twice: one half, bent, opens and closes the other; then narrow.

    FFN(x) = (act(x W) * x V) W_2        GLU Variants Improve Transformer, eq. 6

    SwiGLU with silu, GEGLU with gelu. W and V are the two row blocks of one matrix, so that one
    product makes both. At equal parameters d_ff is two thirds of the plain layer's.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.wide = nn.Linear(config.d_model, 2 * config.width_ff, bias=config.feedforward_bias)
        self.narrow = nn.Linear(config.width_ff, config.d_model, bias=config.feedforward_bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.feedforward_dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Every position through the same layers."""
        gate, value = self.wide(x).chunk(2, dim=-1)  # [B, T, F], [B, T, F]
        bent = self.dropout(self.activation(gate) * value)  # [B, T, F]
        return self.narrow(bent)


def make_feedforward(config: ModelConfig) -> FeedForward | GatedFeedForward:
    """The feed-forward layer that the configuration names."""
    return GatedFeedForward(config) if config.gated else FeedForward(config)
