"""One training step of headwise against one of torch's nn.Transformer: same sizes, same work, same process.

    python benchmarks/train_step.py [--rounds 15] [--sizes tiny base] [--precisions float32 bfloat16]
                                    [--compile]

Both models: post-norm, ReLU, biases everywhere, dropout 0.1 on the attention weights, between the
feed-forward's products, on each sub-layer's output and on embedding plus position; boolean padding
and causal masks; embeddings not tied; label smoothing 0.1; gradients clipped at 1; fused Adam. The
steps alternate, and the ratio is that of the medians. nn.Transformer runs as its tutorial has it:
batch_first, a linear layer to the vocabulary, nn.CrossEntropyLoss with ignore_index over all logits;
its two stacks each end in a LayerNorm, which post-norm headwise has not. headwise leaves out the
logits of padding, which nn.Transformer makes and ignores.
--compile adds headwise with its model through torch.compile (needs a C++ compiler).

Peak memory is what the step allocates on top of weights, gradients and moments, as torch's profiler
counts it; the share of the peak is the step's matrix products (2 operations a multiply-add, forward
and backward) a second, against the fastest large product measured here in the same precision.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler talks on standard error otherwise,
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # and so does the allocator under it

import torch
from torch import Tensor, nn

from headwise import EncoderDecoder, ModelConfig
from headwise.model.positions import sinusoidal_table
from headwise.train.loss import cross_entropy, supervised


@dataclass(frozen=True)
class Size:
    """What is trained on what."""

    d_model: int
    layers: int
    heads: int
    d_ff: int
    vocab: int
    pairs: int
    length: int


SIZES = {
    "tiny": Size(128, 4, 4, 256, 10_000, 256, 16),
    "base": Size(512, 6, 8, 2048, 32_000, 32, 32),
}
PAD, DROPOUT, SMOOTHING = 0, 0.1, 0.1


class TutorialTransformer(nn.Module):
    """nn.Transformer with the embeddings and the output layer that its tutorial puts around it."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.d_model = size.d_model
        self.source_embedding = nn.Embedding(size.vocab, size.d_model)
        self.target_embedding = nn.Embedding(size.vocab, size.d_model)
        self.register_buffer("positions", sinusoidal_table(512, size.d_model))
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            size.d_model, size.heads, size.layers, size.layers, size.d_ff, DROPOUT, batch_first=True
        )
        self.output = nn.Linear(size.d_model, size.vocab, bias=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        length = target.size(1)
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)  # torch: True = may not look
        source_padding, target_padding = source == PAD, target == PAD
        hidden = self.transformer(
            self.embed(self.source_embedding, source),
            self.embed(self.target_embedding, target),
            tgt_mask=causal,
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=target_padding,
            memory_key_padding_mask=source_padding,
        )
        return self.output(hidden)

    def embed(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        """Scaled embedding, position, dropout."""
        return self.dropout(table(ids) * math.sqrt(self.d_model) + self.positions[: ids.size(1)])


def make_text(size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Random pairs; a quarter of the rows end in padding."""
    source = torch.randint(4, size.vocab, (size.pairs, size.length))
    target = torch.randint(4, size.vocab, (size.pairs, size.length + 1))
    for row in range(0, size.pairs, 4):
        cut = size.length - 1 - row // 4 % (size.length // 4)
        source[row, cut:] = PAD
        target[row, cut:] = PAD
    return source, target[:, :-1].contiguous(), target[:, 1:].contiguous()


Autocast = Callable[[], AbstractContextManager[object]]


def training_step(model: nn.Module, loss_of: Callable[[], Tensor], autocast: Autocast) -> Callable[[], float]:
    """One step, the same for both: loss, gradients, clipping, Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step() -> float:
        with autocast():
            loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def torch_step(size: Size, autocast: Autocast) -> Callable[[], float]:
    """A step of nn.Transformer."""
    model = TutorialTransformer(size).train()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=SMOOTHING)
    source, inputs, labels = make_text(size)

    def loss_of() -> Tensor:
        return criterion(model(source, inputs).flatten(0, 1), labels.flatten())

    return training_step(model, loss_of, autocast)


def headwise_step(size: Size, autocast: Autocast, is_compiled: bool = False) -> Callable[[], float]:
    """A step of ours."""
    config = ModelConfig(
        vocab_size=size.vocab, d_model=size.d_model, num_heads=size.heads, d_ff=size.d_ff,
        num_encoder_layers=size.layers, num_decoder_layers=size.layers, norm="post",
        dropout=DROPOUT, attention_dropout=DROPOUT, feedforward_dropout=DROPOUT,
        attention_bias=True, tie_embeddings=False, pad_id=PAD,
    )  # fmt: skip
    model = EncoderDecoder(config).train()
    forward = torch.compile(model.hidden) if is_compiled else model.hidden
    source, inputs, labels = make_text(size)

    def loss_of() -> Tensor:
        hidden, wanted = supervised(forward(source, inputs), labels, PAD)
        return cross_entropy(hidden, model.output.weight, wanted, SMOOTHING, divisor=len(wanted))

    return training_step(model, loss_of, autocast)


def products(size: Size) -> float:
    """Operations of the matrix products of one step, forward and backward."""
    d, tokens = size.d_model, size.pairs * size.length
    attention = 4 * d * d + 2 * size.length * d
    encoder = size.layers * (attention + 2 * d * size.d_ff)
    decoder = size.layers * (2 * attention + 2 * d * size.d_ff)
    return 3 * 2 * tokens * (encoder + decoder + d * size.vocab)


def peak_rate(dtype: torch.dtype) -> float:
    """Operations a second of the best of several large products."""
    a, b = torch.randn(2048, 2048, dtype=dtype), torch.randn(2048, 2048, dtype=dtype)
    best = math.inf
    for _ in range(8):
        began = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - began)
    return 2 * 2048**3 / best


def peak_memory(step: Callable[[], float]) -> int:
    """Most bytes that a step holds at once on top of what was there before it."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step()
    held = highest = 0
    for event in sorted(
        (e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"),  # type: ignore[union-attr]
        key=lambda e: e.start_ns(),
    ):
        held += event.nbytes()
        highest = max(highest, held)
    return highest


def compare(name: str, precision: str, rounds: int, with_compiled: bool) -> None:
    """Print a line for each model, and how they compare."""
    size = SIZES[name]
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]

    def autocast() -> AbstractContextManager[object]:
        return torch.autocast("cpu", torch.bfloat16) if dtype is torch.bfloat16 else nullcontext()

    steps = {"nn.Transformer": torch_step(size, autocast), "headwise": headwise_step(size, autocast)}
    if with_compiled:
        steps["headwise compiled"] = headwise_step(size, autocast, is_compiled=True)
    times: dict[str, list[float]] = {model: [] for model in steps}
    for round_number in range(rounds + 2):  # the first two warm up
        for model, step in steps.items():
            began = time.perf_counter()
            step()
            if round_number >= 2:
                times[model].append(time.perf_counter() - began)
    peak = peak_rate(dtype)
    medians = {model: statistics.median(seconds) for model, seconds in times.items()}
    for model, step in steps.items():
        share = products(size) / medians[model] / peak
        memory = peak_memory(step) / 2**20
        print(
            f"{name:5} {precision:9} {model:17} median {medians[model] * 1e3:7.1f} ms  "
            f"{size.pairs * size.length / medians[model]:7,.0f} target tok/s  "
            f"{share:5.1%} of the product peak  {memory:7,.0f} MiB peak"
        )
    for model in list(steps)[1:]:
        ratio = medians["nn.Transformer"] / medians[model]
        print(f"{name:5} {precision:9} {model} is {ratio:.2f} times as fast as nn.Transformer", flush=True)
    print()


def main() -> None:
    """Compare every size in every precision."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument(
        "--precisions", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"]
    )
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, "
        f"{options.rounds} rounds after 2 of warm-up\n"
    )
    for name in options.sizes:
        for precision in options.precisions:
            compare(name, precision, options.rounds, options.compile)


if __name__ == "__main__":
    main()
