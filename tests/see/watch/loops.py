"""Small models of different hands, and a loop that trains them with a watch or without."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise import EncoderDecoder, ModelConfig
from headwise.see.watch.watch import watch
from headwise.see.watch.watcher import Watch

VOCAB = 20


class Block(nn.Module):
    """Pre-norm, the fused kernel, dropout in three places."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1)
        )
        drop = 0.1 if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=drop)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).flatten(2)), 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.n2(x)))), 0.1, self.training)


class Fused(nn.Module):
    """A decoder with all that a pass can leave behind: a buffer that counts, an attribute, running
    statistics, a list, a generator of its own, a cache in an object of its own class."""

    class Meter:
        def __init__(self) -> None:
            self.calls = 0
            self.kept: list[Tensor] = []

    def __init__(self, width: int = 16, heads: int = 2, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.batch_norm = nn.BatchNorm1d(width)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB)
        self.register_buffer("count", torch.zeros(()))
        self.lengths: list[int] = []
        self.calls = 0
        self.meter = Fused.Meter()
        self.own = torch.Generator().manual_seed(3)

    def forward(self, ids: Tensor) -> Tensor:
        self.count += 1
        self.calls += 1
        self.lengths.append(ids.size(1))
        self.meter.calls += 1
        self.meter.kept = [*self.meter.kept[-1:], ids]
        x = self.tokens(ids) + self.places(torch.arange(ids.size(1)))
        x = x + 1e-3 * torch.randn(x.shape[1:], generator=self.own)
        for block in self.blocks:
            x = block(x)
        x = self.batch_norm(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.norm(x))


class ByHand(nn.Module):
    """A norm and a softmax written out, heads folded into the batch the slow way round."""

    def __init__(self, width: int = 12, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(VOCAB, width)
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.head = nn.Linear(width, VOCAB)

    def normed(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * self.gain + self.shift

    def split(self, x: Tensor) -> Tensor:
        return torch.cat(x.chunk(self.heads, -1), 0)  # [H * B, T, Dh]

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        h = self.normed(x)
        q, k, v = self.split(self.q(h)), self.split(self.k(h)), self.split(self.v(h))
        scores = q @ k.transpose(1, 2) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(torch.ones(ids.size(1), ids.size(1)).triu(1).bool(), float("-inf"))
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        weights = weights / weights.sum(-1, keepdim=True)
        x = x + self.o(torch.cat((weights @ v).chunk(self.heads, 0), -1))
        return self.head(x)


class TimeFirst(nn.Module):
    """nn.TransformerEncoder as its tutorial has it: [T, B, D]."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, 0.1)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(0))
        return self.head(self.body(self.tokens(ids), mask=mask))


CONFIG = ModelConfig(
    vocab_size=VOCAB, d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1,
    dropout=0.1, attention_dropout=0.1,
)  # fmt: skip


class Own(nn.Module):
    """headwise's own translator, called with two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.model = EncoderDecoder(CONFIG)

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids, ids)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "fused": Fused, "by hand": ByHand, "time first": TimeFirst, "own": Own,
}  # fmt: skip


def batch(generator: torch.Generator, rows: int = 4, length: int = 9) -> Tensor:
    """Ids [B, T] (with TimeFirst: [T, B])."""
    return torch.randint(4, VOCAB, (rows, length), generator=generator)


def loss_of(model: nn.Module, ids: Tensor) -> Tensor:
    """Cross-entropy of the next token."""
    if isinstance(model, TimeFirst):
        ids = ids.t()
        return F.cross_entropy(model(ids[:-1]).flatten(0, 1), ids[1:].flatten())
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def trained(
    make: Callable[[], nn.Module],
    steps: int,
    every: int = 0,
    change: Callable[[nn.Module, int], None] = lambda _model, _step: None,
    rate: float = 1e-3,
    **settings: Any,
) -> tuple[nn.Module, torch.optim.Optimizer, Watch | None]:
    """A model after so many steps, watched where `every` is given; change: called before each step."""
    torch.manual_seed(5)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(7)
    seen = None
    if every:
        quietly: dict[str, Any] = {"budget": None, "live": False, "say": lambda _: None, **settings}
        seen = watch(model, optimizer, every, **quietly)
        seen.start()
    for step in range(1, steps + 1):
        change(model, step)
        loss = loss_of(model, batch(generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if seen is not None:
            seen.log(loss=loss)
    if seen is not None:
        seen.stop()
    return model, optimizer, seen
