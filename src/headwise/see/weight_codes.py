"""Attention weights as short text for a page: rounded as they will be read, 12 bits or 8 each, deflated."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Codes:
    """Numbers a weight may become, in rising order, each as the text that is shown for it.

    The first is an exact 0, the second anything above 0 that is too small for the third, the last whatever
    is no weight: NaN, or outside 0 to 1. What is shown is the weight rounded to that many digits.
    precision: the same in words.
    """

    labels: tuple[str, ...]
    precision: str

    def encode(self, weights: Float[Tensor, "*axes"]) -> Int[Tensor, "*axes"]:
        """The code of each weight: that of the nearest number."""
        exact = torch.tensor([0.0, *map(float, self.labels[2:-1])], dtype=torch.float64)
        between = (exact[1:] + exact[:-1]) / 2
        held = weights.detach().to("cpu", torch.float64)
        codes = torch.bucketize(held, between, out_int32=True)
        codes = codes + (codes > 0)  # the second code stands for no number of its own
        codes = torch.where((codes == 0) & (held > 0), 1, codes)
        odd = ~((held >= 0) & (held <= 1 + 1e-3))  # rounding in half precision may pass 1 by a little
        return torch.where(odd, len(self.labels) - 1, codes)


def _codes(decades: tuple[tuple[int, int], ...], precision: str) -> Codes:
    """decades: from 10 to this power on, so many digits; rising; up to 1."""
    labels = ["0", f"under {10.0 ** decades[0][0]:.0e}".replace("e-0", "e-")]
    for (low, digits), (high, _) in pairwise([*decades, (0, 0)]):
        for power in range(low, high):
            for number in range(10 ** (digits - 1), 10**digits):
                text = f"{number / 10 ** (digits - 1 - power):.{digits - 1 - power}f}"
                labels.append(
                    text if power >= -4 else f"{number / 10 ** (digits - 1):.{digits - 1}f}e{power}"
                )
    one = f"{1:.{decades[-1][1] - 1}f}"
    return Codes((*labels, one, "not a weight"), precision)


FINE = _codes(((-8, 2), (-4, 3)), "rounded to three digits, below 0.0001 to two")  # fits 12 bits
COARSE = _codes(((-6, 1), (-2, 2)), "rounded to two digits, below 0.01 to one: there are many")  # 8 bits


def pack_codes(codes: Int[Tensor, "*axes"], narrow: bool) -> tuple[str, str]:
    """The upper 8 bits of each code, and the lower 4 of two codes a byte; narrow: all 8, and nothing.

    The halves are deflated apart: neighbours agree in the upper bits, and the lower are noise.
    """
    flat = codes.flatten().numpy().astype(np.uint16)
    if narrow:
        return pack(flat.astype(np.uint8).tobytes()), ""
    low = (flat & 15).astype(np.uint8)
    low = np.append(low, np.zeros(len(low) % 2, np.uint8))
    return pack((flat >> 4).astype(np.uint8).tobytes()), pack((low[::2] << 4 | low[1::2]).tobytes())


def pack_mask(keep: Bool[Tensor, "Tq Tk"]) -> str:
    """A bit a cell, row by row, the first cell the highest bit."""
    return pack(np.packbits(keep.flatten().cpu().numpy()).tobytes())


def pack(raw: bytes) -> str:
    """Bytes as text: deflated (zlib), then base64."""
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")
