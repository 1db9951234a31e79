"""Stacks of blocks in designs that order sub-layers, sums and norms differently."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

WIDTH, HEADS, VOCAB, DEPTH = 24, 2, 29, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (z.unflatten(-1, (HEADS, -1)).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)
        self.one, self.two = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.scale = nn.Parameter(torch.ones(()))

    def feed(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        match self.order:
            case "pre":
                x = x + self.attention(self.one(x))
                return x + self.feed(self.two(x))
            case "post":
                x = self.one(x + self.attention(x))
                return self.two(x + self.feed(x))
            case "sandwich":
                x = x + self.one(self.attention(x))
                return x + self.two(self.feed(x))
            case "parallel":
                return x + self.attention(self.one(x)) + self.feed(self.one(x))
            case "joined":
                return self.attention(self.one(x)) + self.feed(self.one(x)) + x
            case "rezero":
                x = x + self.scale * self.attention(x)
                return x + self.scale * self.feed(x)
            case "normed":
                x = self.one(x)
                x = x + self.attention(x)
                x = self.two(x)
                return x + self.feed(x)
            case "cut":
                x = x + self.attention(self.one(x))
                return self.feed(self.two(x))
            case _:
                raise ValueError(self.order)


class Model(nn.Module):
    """An embedding, blocks, and a head of two linear layers, which is no sub-layer."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.words, self.stem = nn.Embedding(VOCAB, WIDTH), nn.Sequential(nn.Linear(WIDTH, 40), nn.ReLU())
        self.narrow = nn.Linear(40, WIDTH)
        self.blocks = nn.ModuleList([Block(order) for _ in range(DEPTH)])
        self.head = nn.Sequential(nn.Linear(WIDTH, 40), nn.Tanh(), nn.Linear(40, VOCAB))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.narrow(self.stem(self.words(ids)))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@functools.cache
def found_in(order: str) -> Blocks:
    torch.manual_seed(0)
    ids = torch.randint(0, VOCAB, (5, 14))
    return blocks(Probe(adapt(Subject(Model(order), (ids,), kind="decoder"))))
