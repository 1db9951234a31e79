"""Models whose every influence is known by hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

V, D = 17, 8


class Model(nn.Module):
    """Embeds, lets positions see what `keep` [T, T] says they may, reads out."""

    def __init__(self, keep: str = "causal", length: int | None = None) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(V, D), nn.Linear(D, V)
        self.keep, self.length = keep, length

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        if self.length is not None and ids.shape[1] != self.length:
            raise ValueError(f"{self.length} positions, always")
        return self.head(self.mix(x))

    def mix(self, x: Tensor) -> Tensor:
        ones = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype)
        keep = {
            "causal": ones.tril(),
            "ahead": ones.tril(1),
            "all": ones,
            "self": ones.tril().triu(),
            "two back": ones.tril().triu(-2),
        }[self.keep]
        return torch.tanh(keep @ x)


class RowMixing(Model):
    """Each row looks at the one before it."""

    def mix(self, x: Tensor) -> Tensor:
        return x + 0.5 * x.roll(1, 0)


class Normed(Model):
    """Statistics over the whole batch."""

    def mix(self, x: Tensor) -> Tensor:
        return x / x.std()


def ids(rows: int = 6, length: int = 20) -> Tensor:
    return torch.randint(1, V, (rows, length))


def probe_of(model: nn.Module, inputs: Any = None, **more: Any) -> Probe:
    return Probe(adapt(Subject(model, ids() if inputs is None else inputs, **more)))


def bits(probe: Probe, seen: dict[int, Tensor]) -> Tensor:
    return probe.rows_first(seen[probe.base.logits_value.index])
