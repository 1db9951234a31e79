"""Models written in different styles, and what a probe of one pass says of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.subject import Subject
from headwise.see.walk.axes import Axes
from headwise.see.walk.layers import Layers, layers_of
from headwise.see.walk.once import Once, once
from headwise.see.walk.steps import Claims, Draft, Step
from headwise.see.walk.telling import tell
from headwise.see.walk.walk import Walk

VOCAB = 23


class Attention(nn.Module):
    """Three linear layers, heads by view and transpose; `scale` of the scores, causal where asked for."""

    def __init__(self, width: int = 16, heads: int = 4, scale: float | None = None, causal: bool = False):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.scale = 1 / math.sqrt(width // heads) if scale is None else scale
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) * self.scale
        if self.causal:
            keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            scores = scores.masked_fill(~keep, float("-inf"))
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    """A post-norm block, as in the paper."""

    def __init__(self, width: int = 16, **named: Any) -> None:
        super().__init__()
        self.attention = Attention(width, **named)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x + self.attention(x))
        return self.second(x + self.inner(x))


class Einsum(nn.Module):
    """Heads of their own in the weights, a softmax and a norm by hand, nothing in modules of its own."""

    def __init__(self, width: int = 12, heads: int = 3, depth: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, width)
        self.places = nn.Parameter(torch.randn(20, width))
        each = width // heads
        self.w = nn.ParameterList(
            nn.Parameter(torch.randn(3, heads, width, each) / math.sqrt(width)) for _ in range(depth)
        )
        self.o = nn.ParameterList(
            nn.Parameter(torch.randn(heads, each, width) / math.sqrt(width)) for _ in range(depth)
        )
        self.gain = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(2 * depth))
        self.up = nn.ModuleList(nn.Linear(width, 20) for _ in range(depth))
        self.down = nn.ModuleList(nn.Linear(20, width) for _ in range(depth))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places[: ids.shape[1]]
        keep = torch.ones(ids.shape[1], ids.shape[1]).tril() > 0
        for n in range(len(self.w)):
            y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain[2 * n]
            q, k, v = (torch.einsum("btd,hde->bhte", y, w) for w in self.w[n])
            s = torch.einsum("bhte,bhse->bhts", q, k) / q.shape[-1] ** 0.5
            e = torch.exp(torch.where(keep, s, -1e9))
            a = e / e.sum(-1, keepdim=True)
            x = x + torch.einsum("bhts,bhse,hed->btd", a, v, self.o[n])
            y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain[2 * n + 1]
            x = x + self.down[n](F.gelu(self.up[n](y)))
        return x @ self.table.weight.T


class TimeMajor(nn.Module):
    """torch's attention with time first, as its author has it."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, width)
        self.attention = nn.MultiheadAttention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids).transpose(0, 1)
        y, _ = self.attention(x, x, x, need_weights=True)
        return self.head(self.norm(x + y)).transpose(0, 1)


class Llama(nn.Module):
    """One matrix for Q, K and V, shared keys, rotary positions, the kernel, a gated feed-forward layer."""

    def __init__(self, width: int = 16, heads: int = 4, shared: int = 2, depth: int = 2) -> None:
        super().__init__()
        self.heads, self.shared, self.each = heads, shared, width // heads
        self.table = nn.Embedding(VOCAB, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "a": nn.RMSNorm(width),
                    "qkv": nn.Linear(width, (heads + 2 * shared) * self.each, bias=False),
                    "o": nn.Linear(width, width, bias=False),
                    "f": nn.RMSNorm(width),
                    "gate": nn.Linear(width, 24, bias=False),
                    "up": nn.Linear(width, 24, bias=False),
                    "down": nn.Linear(24, width, bias=False),
                }
            )
            for _ in range(depth)
        )
        self.norm = nn.RMSNorm(width)

    def turn(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[2])[:, None] / 100 ** (torch.arange(0, self.each, 2) / self.each)
        angles = torch.cat([angles, angles], -1)
        one, other = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-other, one], -1) * angles.sin()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        rows, length = ids.shape
        for layer in self.layers:
            wide = layer["qkv"](layer["a"](x))
            sizes = [self.heads * self.each, self.shared * self.each, self.shared * self.each]
            q, k, v = (t.view(rows, length, -1, self.each).transpose(1, 2) for t in wide.split(sizes, -1))
            q, k = self.turn(q), self.turn(k)
            k, v = (t.repeat_interleave(self.heads // self.shared, 1) for t in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + layer["o"](y.transpose(1, 2).reshape(rows, length, -1))
            y = layer["f"](x)
            x = x + layer["down"](F.silu(layer["gate"](y)) * layer["up"](y))
        return F.linear(self.norm(x), self.table.weight)


def ids(rows: int = 3, length: int = 7) -> Tensor:
    return torch.randint(1, VOCAB, (rows, length), generator=torch.Generator().manual_seed(0))


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def seen(model: nn.Module, inputs: Any, **named: Any) -> tuple[Once, Layers, Axes, Claims]:
    """What a walk is made from."""
    probe = once(adapt(Subject(model.eval(), inputs, **named)), None)
    layers = layers_of(probe)
    axes = Axes(probe, layers)
    return probe, layers, axes, tell(probe, layers, axes)


def drafted(claims: Claims, name: str) -> Draft:
    """The first step of this name."""
    return min((draft for draft in claims.drafts if draft.name == name), key=lambda draft: draft.at)


def step(walk: Walk, name: str) -> Step:
    """The first step of this name."""
    return next(each for each in walk.steps if each.name == name)


def rows(walk: Walk) -> list[tuple[str, str, tuple[int, ...], str]]:
    """Name, operation, shape and axes of every step."""
    return [(s.name, s.operation, s.shape, " ".join(s.axes)) for s in walk.steps]
