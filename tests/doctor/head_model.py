"""One attention layer whose split, merge and factor are handed in."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

H, DH = 4, 6


D = H * DH


Split = Callable[[Tensor], Tensor]


def cut(x: Tensor) -> Tensor:
    return x.view(x.size(0), x.size(1), H, DH).transpose(1, 2)


def scramble(x: Tensor) -> Tensor:
    return x.view(x.size(0), H, x.size(1), DH)


def join(y: Tensor) -> Tensor:
    return y.transpose(1, 2).reshape(y.size(0), y.size(2), D)


def join_across_time(y: Tensor) -> Tensor:
    return y.reshape(y.size(0), y.size(2), D)


class Model(nn.Module):
    """One attention layer, with the step under test handed in."""

    def __init__(
        self,
        split: Split = cut,
        put: Split = join,
        scale: float = DH**-0.5,
        keys: str = "k",
        turn: bool = False,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(20, D)
        self.parts = nn.ModuleDict({name: nn.Linear(D, D) for name in "qkvo"})
        self.split, self.put, self.scale, self.keys, self.turn = split, put, scale, keys, turn

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        q, k, v = (self.split(self.parts[name](x)) for name in ("q", self.keys, "v"))
        if self.turn:
            angle = torch.arange(ids.size(1))[:, None] * torch.tensor([1.0, 0.1, 0.01]).to(x)
            q, k = (rotate(t, angle) for t in (q, k))
        weights = (q @ k.mT * self.scale).softmax(-1)
        return x + self.parts["o"](self.put(weights @ v))


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def probe_of(model: nn.Module) -> Probe:
    ids = torch.randint(0, 20, (5, 13), generator=torch.Generator().manual_seed(1))
    return Probe(adapt(Subject(model, (ids,), kind="encoder")))
