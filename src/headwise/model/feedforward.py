"""The position-wise layer: the same two products at every position, by themselves."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig
from headwise.model.dropout import Dropout

_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """Widen, bend, narrow.

    FFN(x) = max(0, x W_1 + b_1) W_2 + b_2        Attention Is All You Need, eq. 2

    Differs from the paper: GELU (Gaussian Error Linear Units, eq. 2) on request, and dropout
    between the two products (`feedforward_dropout`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.wide = nn.Linear(config.d_model, config.width_ff, bias=config.feedforward_bias)
        self.narrow = nn.Linear(config.width_ff, config.d_model, bias=config.feedforward_bias)
        self.activation = _ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.feedforward_dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Every position through the same two layers."""
        bent = self.dropout(self.activation(self.wide(x)))  # [B, T, F]
        return self.narrow(bent)
