"""One attention over tokens and whatever is added to them for their places."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

VOCAB, WIDTH, LONGEST = 23, 16, 40


class Reader(nn.Module):
    """One attention over tokens and whatever `place` adds to them."""

    def __init__(self, place: str = "table", time_major: bool = False) -> None:
        super().__init__()
        self.place, self.time_major = place, time_major
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.table = nn.Parameter(0.1 * torch.randn(LONGEST, WIDTH))
        self.zeros = nn.Parameter(torch.zeros(LONGEST, WIDTH))
        self.register_buffer("waves", torch.sin(torch.arange(LONGEST)[:, None] * torch.rand(WIDTH)))
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, VOCAB)

    def positions(self, ids: Tensor) -> Tensor | float:
        length = ids.size(0) if self.time_major else ids.size(1)
        count = torch.arange(length)
        if self.place == "none":
            return 0.0
        if self.place == "constant":
            count = torch.zeros_like(count)
        held: dict[str, Tensor] = {"waves": self.waves, "zeros": self.zeros}
        found = nn.functional.embedding(count, held.get(self.place, self.table))
        return found[:, None] if self.time_major else found

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.types(torch.zeros_like(ids))
        x = x + self.positions(ids)
        x = x.transpose(0, 1) if self.time_major else x
        scores = self.q(x) @ self.k(x).mT / WIDTH**0.5
        if self.place == "bias":
            far = torch.arange(x.size(1))
            scores = scores - 0.3 * (far[:, None] - far).abs()
        y = x + scores.softmax(-1) @ self.v(x)
        return self.out(y.transpose(0, 1) if self.time_major else y)


def probe_of(**named: Any) -> Probe:
    torch.manual_seed(0)
    model = Reader(**named)
    ids = torch.randint(0, VOCAB, (6, 15))
    layout = "time-major" if model.time_major else "batch-first"
    given = ids.T.contiguous() if model.time_major else ids
    return Probe(adapt(Subject(model, (given,), kind="encoder", layout=layout)))
