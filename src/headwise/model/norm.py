"""LayerNorm: each position's vector to mean 0 and variance 1, by itself."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class LayerNorm(nn.Module):
    """Normalise the last axis alone, then scale and shift each coordinate.

    y = (x - mean) / sqrt(variance + eps) * gain + bias        Layer Normalization, section 3

    The variance is the biased one (divided by D, not D - 1) and eps lies inside the root. Nothing
    is shared between positions or sequences, so batch and padding cannot matter.
    Law: adding a constant to x, or scaling x by a positive number (eps aside), changes nothing.
    """

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*axes D"]) -> Float[Tensor, "*axes D"]:
        """The formula above in one pass (torch's kernel; a test holds it against the formula)."""
        return F.layer_norm(x, (x.size(-1),), self.gain, self.bias, self.eps)

    def extra_repr(self) -> str:
        """What print(model) shows."""
        return f"{self.gain.numel()}, eps={self.eps}"
