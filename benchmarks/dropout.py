"""Our dropout against torch's, forward and backward, taken in turn in one process.

python benchmarks/dropout.py [--rounds 31]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import nn

from headwise.model.dropout import Dropout


def main() -> None:
    """Print a line for each shape and precision."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; p = 0.1, forward and backward")
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ((4096, 128), (1024, 512), (1024, 2048)):
            x = torch.randn(shape, dtype=dtype, requires_grad=True)
            gradient = torch.randn_like(x)
            times: dict[str, list[float]] = {"headwise": [], "torch": []}
            layers = {"headwise": Dropout(0.1).train(), "torch": nn.Dropout(0.1).train()}
            for round_number in range(options.rounds + 2):  # the first two warm up
                for name, layer in layers.items():
                    began = time.perf_counter()
                    layer(x).backward(gradient)
                    if round_number >= 2:
                        times[name].append(time.perf_counter() - began)
            ours, theirs = (statistics.median(times[name]) * 1e3 for name in ("headwise", "torch"))
            print(
                f"{str(dtype)[6:]:9} {shape!s:13} headwise {ours:6.2f} ms  torch {theirs:6.2f} ms  "
                f"headwise is {theirs / ours:.1f} times as fast",
                flush=True,
            )


if __name__ == "__main__":
    main()
