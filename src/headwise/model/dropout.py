"""Dropout whose random numbers do not cost more than the model, on the CPU too.

torch draws a number for each element and, on a CPU, that can take longer than the matrix product
before it. Here 64 random bits decide four elements (benchmarks/dropout.py measures both); the rate
is then a multiple of 2^-16, and the scale is corrected for exactly that rate, so the expectation
is untouched. Other devices have their own fast kernels and use them.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 1 << 16  # a 16-bit lane has this many equally likely values


class Dropout(nn.Module):
    """Zero each element with probability p while training, and scale the others by 1 / (1 - p).

    Dropout: A Simple Way to Prevent Neural Networks from Overfitting, section 4.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Return x thinned out while training, x itself in evaluation."""
        if not self.training or self.p == 0:
            return x
        if not _has_fast_bits(x):
            return F.dropout(x, self.p)
        return x * dropout_mask(x, self.p)

    def add(self, residual: Float[Tensor, "*axes"], x: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """residual + dropout(x), in one pass over memory."""
        if not self.training or self.p == 0:
            return residual + x
        if not _has_fast_bits(x):
            return residual + F.dropout(x, self.p)
        return torch.addcmul(residual, x, dropout_mask(residual, self.p))

    def extra_repr(self) -> str:
        """What print(model) shows."""
        return f"p={self.p}"


def dropout_mask(like: Float[Tensor, "*axes"], p: float) -> Float[Tensor, "*axes"]:
    """0 with probability p, else 1 / (1 - p), in the shape and dtype of `like`.

    p is rounded to a multiple of 2^-16. Law: the mean over many elements is 1.
    """
    threshold = min(round(p * _LEVELS), _LEVELS - 1)
    bits = torch.empty((like.numel() + 3) // 4, dtype=torch.int64)
    # from the lowest to the highest int64: the default leaves the sign bit, and a lane's top bit, zero
    lanes = bits.random_(-(2**63), None).view(torch.int16)[: like.numel()]
    kept = lanes >= threshold - _LEVELS // 2
    return kept.to(like.dtype).mul_(_LEVELS / (_LEVELS - threshold)).view(like.shape)


def _has_fast_bits(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
