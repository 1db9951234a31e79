"""An attention with a cache, faults for it, and ways to generate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

VOCAB, WIDTH = 29, 24


class Cached(nn.Module):
    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(40, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.merge = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, VOCAB)
        nn.init.zeros_(self.merge.weight)  # a fresh model that attention does not reach

    def forward(self, ids: Tensor, past: Any = None) -> tuple[Tensor, Any]:
        seen = 0 if past is None or self.fault == "restart" else past[0].size(1)
        x = self.words(ids) + self.places(torch.arange(seen, seen + ids.size(1)))
        q, k, v = self.qkv(x).chunk(3, -1)
        if past is not None:
            k = torch.cat((past[0], k), 1)
            v = torch.cat((v, past[1]) if self.fault == "order" else (past[1], v), 1)
        new, old = q.size(1), k.size(1)
        keep = torch.ones(new, old, dtype=torch.bool).tril(0 if self.fault == "mask" else old - new)
        scores = (q @ k.mT / WIDTH**0.5).masked_fill(~keep, float("-inf"))
        return self.out(x + self.merge(scores.softmax(-1) @ v)), (k, v)


@torch.no_grad()
def with_cache(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    step, past = ids, None
    for _ in range(n_new):
        logits, past = model(step, past)
        step = logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat((ids, step), 1)
    return ids


@torch.no_grad()
def without_cache(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    for _ in range(n_new):
        ids = torch.cat((ids, model(ids)[0][:, -1:].argmax(-1)), 1)
    return ids


@torch.no_grad()
def only_the_new(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    return with_cache(model, ids, n_new)[:, ids.size(1) :]


@torch.no_grad()
def stale(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    """Feeds the first prompt token again and again."""
    logits, past = model(ids)
    first = ids[:, :1]
    for _ in range(n_new):
        ids = torch.cat((ids, logits[:, -1].argmax(-1, keepdim=True)), 1)
        logits, past = model(first, past)
    return ids


@torch.no_grad()
def mixes_rows(model: nn.Module, ids: Tensor, n_new: int) -> Tensor:
    for _ in range(n_new):
        scores = model(ids)[0][:, -1]
        ids = torch.cat((ids, (scores - scores.mean(0)).argmax(-1, keepdim=True)), 1)
    return ids


def probe_of(fault: str = "", generate: Callable[..., Tensor] = with_cache) -> Probe:
    torch.manual_seed(0)
    ids = torch.stack([(start + 2 * torch.arange(14)) % VOCAB for start in range(5)])
    return Probe(adapt(Subject(Cached(fault), (ids,), kind="decoder", generate=generate)))
