"""Where torch's fused attention overtakes the explicit products: the constants of model/attention.py.

    python benchmarks/attention.py [--rounds 15] [--tokens 4096]

Forward and backward of both ways of `attend` on the same inputs (4 heads of width 32, a boolean
padding mask, about the same number of tokens at every length), taken in turn in one process; the
ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.model.attention import attend_with_weights


def explicit(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """Products and softmax one by one."""
    return attend_with_weights(q, k, v, keep)[0]


def fused(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """torch's kernel."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep)


def main() -> None:
    """Print a line for each length and precision."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=4096)
    options = parser.parse_args()
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; forward and backward, milliseconds")
    print("dtype       keys   explicit      fused   explicit is")
    for dtype in (torch.float32, torch.bfloat16):
        for length in (16, 24, 32, 64, 128, 192, 256, 512, 1024):
            size = max(1, options.tokens // length)
            q, k, v = (torch.randn(size, 4, length, 32, dtype=dtype, requires_grad=True) for _ in range(3))
            keep = torch.rand(size, 1, 1, length) < 0.8
            keep[..., 0] = True
            gradient = torch.randn_like(q)
            times: dict[str, list[float]] = {"explicit": [], "fused": []}
            for round_number in range(options.rounds + 2):  # the first two warm up
                for way in (explicit, fused):
                    began = time.perf_counter()
                    way(q, k, v, keep).backward(gradient)
                    if round_number >= 2:
                        times[way.__name__].append(time.perf_counter() - began)
            one, other = (statistics.median(times[name]) * 1e3 for name in ("explicit", "fused"))
            print(
                f"{str(dtype)[6:]:9} {length:6} {one:10.2f} {other:10.2f}   {other / one:.2f} times as fast",
                flush=True,
            )


if __name__ == "__main__":
    main()
