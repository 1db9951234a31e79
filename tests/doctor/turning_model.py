"""An attention whose queries and keys are turned by a function handed in, right or wrong."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

Turn = Callable[[Tensor, Tensor], Tensor]


HEAD, VOCAB = 12, 19


def half(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def by_halves(x: Tensor, angle: Tensor) -> Tensor:
    angle = torch.cat((angle, angle), -1)
    return x * angle.cos() + half(x) * angle.sin()


def by_neighbours(x: Tensor, angle: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


def by_complex(x: Tensor, angle: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).flatten(-2)


def in_part(x: Tensor, angle: Tensor) -> Tensor:
    return torch.cat((by_halves(x[..., :8], angle[..., :4]), x[..., 8:]), -1)


def mismatched(x: Tensor, angle: Tensor) -> Tensor:
    angle = angle.repeat_interleave(2, -1)
    return x * angle.cos() + half(x) * angle.sin()


def without_minus(x: Tensor, angle: Tensor) -> Tensor:
    angle = torch.cat((angle, angle), -1)
    a, b = x.chunk(2, -1)
    return x * angle.cos() + torch.cat((b, a), -1) * angle.sin()


def two_cosines(x: Tensor, angle: Tensor) -> Tensor:
    angle = torch.cat((angle, angle), -1)
    return x * angle.cos() + half(x) * angle.cos()


class Turner(nn.Module):
    def __init__(self, turn: Turn, turn_values: bool) -> None:
        super().__init__()
        self.turn, self.turn_values = turn, turn_values
        self.words = nn.Embedding(VOCAB, 2 * HEAD)
        self.qkv = nn.Linear(2 * HEAD, 6 * HEAD)
        self.out = nn.Linear(2 * HEAD, VOCAB)

    def forward(self, ids: Tensor) -> Tensor:
        q, k, v = self.qkv(self.words(ids)).unflatten(-1, (3, 2, HEAD)).permute(2, 0, 3, 1, 4)
        rates = 100.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        angle = torch.arange(ids.size(1))[:, None] * rates
        q, k = self.turn(q, angle), self.turn(k, angle)
        v = self.turn(v, angle) if self.turn_values else v
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def probe_of(turn: Turn, turn_values: bool = False) -> Probe:
    torch.manual_seed(0)
    ids = torch.randint(0, VOCAB, (5, 14))
    return Probe(adapt(Subject(Turner(turn, turn_values), (ids,), kind="decoder")))
