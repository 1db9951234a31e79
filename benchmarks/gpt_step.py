"""One training step of headwise's language model against one of nanoGPT's: same sizes, same process.

    python benchmarks/gpt_step.py PATH/TO/nanoGPT/model.py [--rounds 41] [--threads 2]

Sizes are nanoGPT's for a CPU: 4 layers, 4 heads, width 128, 64 characters, 12 windows a step, 65
characters, dropout 0, float32, gradients clipped at 1. nanoGPT runs its own model and the optimizer that
its `configure_optimizers` makes. headwise runs twice: with nanoGPT's architecture (learned positions,
LayerNorm, GELU, no biases), and as recipes/shakespeare.yaml has it (rotary, RMSNorm, SwiGLU). The
steps alternate, and the ratio is that of the medians. nanoGPT is not part of headwise: fetch it yourself
(https://github.com/karpathy/nanoGPT).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise import LanguageModel, ModelConfig, TrainConfig
from headwise.train.loss import cross_entropy
from headwise.train.optim import make_optimizer, set_learning_rate

VOCAB, LENGTH, ROWS, RATE = 65, 64, 12, 1e-3
Step = Callable[[Tensor, Tensor], float]

SAME = ModelConfig(
    vocab_size=VOCAB,
    d_model=128,
    num_heads=4,
    num_encoder_layers=0,
    num_decoder_layers=4,
    norm="pre",
    activation="gelu",
    positions="learned",
    max_length=LENGTH,
    dropout=0.0,
    feedforward_bias=False,
    scale_embedding=False,
    pad_id=None,
)
RECIPE = replace(
    SAME, d_ff=344, gated=True, activation="silu", norm_kind="rms", positions="rotary", scale_embedding=True
)
TRAIN = TrainConfig(
    optimizer="adamw", learning_rate=RATE, beta2=0.99, adam_eps=1e-8, weight_decay=0.1, warmup_steps=0
)


def ours(config: ModelConfig) -> tuple[nn.Module, Step]:
    """A step as headwise.train takes it."""
    model = LanguageModel(config)
    optimizer = make_optimizer(model, TRAIN)
    set_learning_rate(optimizer, RATE)

    def step(ids: Tensor, labels: Tensor) -> float:
        hidden = model.hidden(ids).flatten(0, 1)
        loss = cross_entropy(hidden, model.output.weight, labels.flatten(), 0.0, labels.numel())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return model.train(), step


def theirs(path: Path) -> tuple[nn.Module, Step]:
    """A step as nanoGPT's train.py takes it on a CPU."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    assert spec is not None and spec.loader is not None, f"{path} is no Python file"
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with contextlib.redirect_stdout(io.StringIO()):
        config = module.GPTConfig(
            block_size=LENGTH, vocab_size=VOCAB, n_layer=4, n_head=4, n_embd=128, dropout=0.0, bias=False
        )
        model = module.GPT(config)
        optimizer = model.configure_optimizers(0.1, RATE, (0.9, 0.99), "cpu")

    def step(ids: Tensor, labels: Tensor) -> float:
        _, loss = model(ids, labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return model.train(), step


def main() -> None:
    """Print the medians and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("nanogpt", type=Path)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    runs = {
        "nanoGPT": theirs(given.nanogpt),
        "headwise, nanoGPT's architecture": ours(SAME),
        "headwise, recipes/shakespeare.yaml": ours(RECIPE),
    }
    took: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(given.rounds + 3):
        windows = torch.randint(VOCAB, (ROWS, LENGTH + 1))
        ids, labels = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()  # as nanoGPT's views need
        for name, (_, step) in runs.items():
            began = time.perf_counter()
            step(ids, labels)
            if number >= 3:  # the first ones warm up
                took[name].append(time.perf_counter() - began)
    print(f"torch {torch.__version__}, {given.threads} threads, {given.rounds} rounds after 3 of warm-up")
    medians = {name: statistics.median(times) for name, times in took.items()}
    for name, (model, _) in runs.items():
        size = sum(p.numel() for p in model.parameters())
        speed = ROWS * LENGTH / medians[name]
        ratio = medians["nanoGPT"] / medians[name]
        print(
            f"{name:<36}{size:>9,} parameters  {1e3 * medians[name]:6.2f} ms a step  "
            f"{speed:>7,.0f} characters/s  {ratio:.2f} times nanoGPT's speed"
        )


if __name__ == "__main__":
    main()
