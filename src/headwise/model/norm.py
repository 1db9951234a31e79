"""LayerNorm and RMSNorm: each position's vector to a fixed size, by itself."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.config import ModelConfig


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


class RMSNorm(nn.Module):
    """Scale the last axis alone to a root mean square of 1, then scale each coordinate.

    y = x / sqrt(mean(x^2) + eps) * gain        Root Mean Square Layer Normalization, eq. 4

    LayerNorm without the mean and without the bias, as T5 and LLaMA have it.
    Law: scaling x by a positive number (eps aside) changes nothing.
    """

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*axes D"]) -> Float[Tensor, "*axes D"]:
        """The formula above in one pass (torch's kernel; a test holds it against the formula)."""
        return F.rms_norm(x, (x.size(-1),), self.gain, self.eps)

    def extra_repr(self) -> str:
        """What print(model) shows."""
        return f"{self.gain.numel()}, eps={self.eps}"


def make_norm(config: ModelConfig, width: int | None = None) -> LayerNorm | RMSNorm:
    """The norm that the configuration names, of d_model coordinates or of `width`."""
    kind = RMSNorm if config.norm_kind == "rms" else LayerNorm
    return kind(config.d_model if width is None else width, config.norm_eps)
