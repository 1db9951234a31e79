"""What `headwise.watch` costs: training with it at every=50 against training without, in one process.

    python benchmarks/watch.py [--rounds 7] [--steps 50] [--threads 1] [--models tiny base gpt]

Two copies of one model train on the same batches, in turn, step by step. A round is as many steps as lie
between two measured ones, one of them measured, so that each round pays for one look; the ratio is that of
the medians over the rounds, in seconds of the processor, so that what else runs on the machine counts
little. What the first look costs, once in a training, is told apart. The watch runs as it does by default
but for its budget: with it, a look that would cost more than 3 % would be left out.

tiny, base: headwise's encoder-decoder, float32, batches of 2,040 tokens a side: 2+2 layers of width
64 with 500 words (half of recipes/dates.yaml's width), 4+4 of width 128 with 6,000 (as recipes/multi30k.yaml
has them). gpt: a decoder written by hand with the fused kernel, dropout within, AdamW, 4,096 tokens.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise import EncoderDecoder, ModelConfig
from headwise.see.watch.watch import watch
from headwise.see.watch.watcher import Watch
from headwise.train.loss import cross_entropy, supervised


class Block(nn.Module):
    """Attention and feed-forward, normed before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to the same."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.first(x)).chunk(3, -1)
        )
        dropout = 0.1 if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), 0.1, self.training)


class Decoder(nn.Module):
    """A small GPT, as many write it."""

    def __init__(self, vocab: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits [B, T, V]."""
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt() -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """4 blocks of width 128, 16 rows of 256 tokens, 1,000 words."""
    ids = torch.randint(1_000, (16, 257))

    def loss(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    return Decoder(1_000, 128, 4, 4, 256), loss


def pairs(
    width: int, layers: int, heads: int, rows: int, length: int, vocab: int
) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    """headwise's translator and its loss; `rows` pairs of `length` tokens."""
    config = ModelConfig(
        vocab_size=vocab, d_model=width, num_heads=heads, d_ff=2 * width, num_encoder_layers=layers,
        num_decoder_layers=layers, dropout=0.1,
    )  # fmt: skip
    source, target = torch.randint(4, vocab, (rows, length)), torch.randint(4, vocab, (rows, length + 1))

    def loss(model: nn.Module) -> Tensor:
        assert isinstance(model, EncoderDecoder)
        hidden, wanted = supervised(hidden_of(model)(source, target[:, :-1]), target[:, 1:], config.pad_id)
        return cross_entropy(hidden, model.output.weight, wanted, 0.1, divisor=len(wanted))

    return EncoderDecoder(config), loss


def hidden_of(model: nn.Module) -> Callable[..., Tensor]:
    """What the loop calls: the model's method, or the watch's in its place."""
    found: Callable[..., Tensor] = getattr(model, "called", None) or model.hidden
    return found


MODELS: dict[str, Callable[[], tuple[nn.Module, Callable[[nn.Module], Tensor]]]] = {
    "tiny": lambda: pairs(64, 2, 4, 102, 20, 500),
    "base": lambda: pairs(128, 4, 4, 102, 20, 6_000),
    "gpt": gpt,
}


def compare(name: str, rounds: int, steps: int) -> float:
    """Print the seconds of a step without and with, and their ratio, which is returned."""
    torch.manual_seed(1)
    bare, loss = MODELS[name]()
    watched = copy.deepcopy(bare)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True) for m in (bare, watched)]
    watching: Watch = watch(watched, optimizers[1], steps, live=False, budget=None, say=lambda _: None)
    if hasattr(watched, "hidden"):
        watched.called = watching.called(watched.hidden)
    watching.start()
    times: list[list[float]] = [[], []]
    learning = 0.0
    for number in range(rounds + 1):
        spent = [0.0, 0.0]
        for step in range(steps):
            for which, model in enumerate((bare, watched)):
                torch.manual_seed(number * steps + step)  # the same dropout in both
                began = time.process_time()
                value = loss(model)
                optimizers[which].zero_grad()
                value.backward()
                optimizers[which].step()
                spent[which] += time.process_time() - began
        if number:  # the first round warms up, and the watch learns
            for each, seconds in zip(times, spent, strict=True):
                each.append(seconds / steps)
        learning = learning or watching.seconds
    watching.stop()
    same = all(torch.equal(a, b) for a, b in zip(bare.parameters(), watched.parameters(), strict=True))
    plain, seen = (statistics.median(each) for each in times)
    count = sum(p.numel() for p in bare.parameters())
    print(
        f"{name:5} {count:10,} parameters  {plain * 1e3:8.2f} ms a step without, {seen * 1e3:8.2f} ms with: "
        f"ratio {seen / plain:.4f}  (a look {(watching.seconds - learning) / max(rounds, 1) * 1e3:.0f} ms, "
        f"the first {learning * 1e3:.0f} ms)  weights {'the same bits' if same else 'DIFFER'}",
        flush=True,
    )
    return seen / plain


def main() -> None:
    """Compare every model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"torch {torch.__version__}, {options.threads} threads, every={options.steps}, "
        f"{options.rounds} rounds"
    )
    for name in options.models:
        compare(name, options.rounds, options.steps)


if __name__ == "__main__":
    main()
