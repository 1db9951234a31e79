"""A net into whose middle a mistake is put, and what is told of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.shape_causes import cause_of
from headwise.doctor.shapes_told import failure_of
from headwise.doctor.subject import Subject

BATCH, TIME, WIDTH, HEADS, VOCAB = 5, 13, 24, 3, 40


class Net(nn.Module):
    def __init__(self, middle) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.places = nn.Embedding(9, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS)
        self.middle = middle

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.middle(self, self.words(ids)))


def told(middle, ids: Tensor | None = None):
    ids = torch.arange(BATCH * TIME).view(BATCH, TIME) % VOCAB if ids is None else ids
    probe = Probe(adapt(Subject(Net(middle), (ids,))))
    assert probe.failure is not None
    failure = failure_of(probe)
    return failure, None if failure is None else cause_of(probe, failure)


def heads(net: Net, h: Tensor) -> Tensor:
    return h.view(BATCH, TIME, HEADS, WIDTH // HEADS).transpose(1, 2)


def not_transposed(net: Net, h: Tensor) -> Tensor:
    q = k = heads(net, h)
    return q @ k
