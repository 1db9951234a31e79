"""A model whose middle is given, and what one training pass tells of it."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.backward import training_pass
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject


class Net(nn.Module):
    def __init__(self, middle) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9)
        self.middle = middle

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.middle(self, self.table(ids)))


def passed(middle, loss=lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())):
    ids = torch.arange(20).view(4, 5) % 9
    return training_pass(Probe(adapt(Subject(Net(middle), (ids,), targets=ids, loss=loss))))


def plain(net: Net, h: Tensor) -> Tensor:
    return net.layer(h)


def line_of(function, words: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if n and words in line)
