"""One attention layer whose mask, and how it is put on, are given from outside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.subject import Subject

HEADS, WIDTH = 2, 8


class Attention(nn.Module):
    """One layer; `visible` [T, T] and how it is put on are given from outside."""

    def __init__(self, visible: Any, way: str) -> None:
        super().__init__()
        self.visible, self.way = visible, way
        self.embed = nn.Embedding(19, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, 19)

    def forward(self, ids: Tensor) -> Tensor:
        rows, length = ids.shape
        q, k, v = (
            t.view(rows, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for t in self.qkv(self.embed(ids)).chunk(3, -1)
        )
        keep = self.visible(length)
        scores = q @ k.mT / (WIDTH // HEADS) ** 0.5
        if self.way == "fill":
            weights = scores.masked_fill(~keep, -1e9).softmax(-1)
        elif self.way == "add":
            weights = (scores + torch.zeros(keep.shape).masked_fill(~keep, float("-inf"))).softmax(-1)
        elif self.way == "where":
            weights = torch.where(keep, scores, torch.full_like(scores, -1e4)).softmax(-1)
        elif self.way == "weak":
            weights = scores.masked_fill(~keep, 1e-9).softmax(-1)
        elif self.way == "shifted":
            weak = scores + torch.where(keep, 0.0, -3.0)
            weights = (weak - weak.amax(-1, keepdim=True)).softmax(-1)
        elif self.way == "times":
            weights = (scores * keep).softmax(-1)
        elif self.way == "after":
            weights = scores.softmax(-1) * keep
        elif self.way == "renormalised":
            weights = scores.softmax(-1) * keep
            weights = weights / weights.sum(-1, keepdim=True)
        else:
            weights = scores.softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(rows, length, WIDTH))


def probe_of(visible: Any, way: str = "fill") -> Probe:
    torch.manual_seed(0)
    ids = torch.randint(0, 19, (3, 12))
    return Probe(adapt(Subject(Attention(visible, way), (ids,), kind="decoder")))


def site_of(visible: Any, way: str = "fill") -> tuple[Probe, Site]:
    probe = probe_of(visible, way)
    (site,) = probe.sites
    return probe, site


def square(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool)


def causal(length: int) -> Tensor:
    return square(length).tril()
