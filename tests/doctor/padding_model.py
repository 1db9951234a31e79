"""One attention whose mask is a function of the ids, and rows with padding on either side."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Kind, Subject

PAD, WIDTH, HEADS = 0, 8, 2


class Reader(nn.Module):
    """One attention whose mask is a function of the ids, [B, 1, T, T] or None; pools where asked."""

    def __init__(
        self, visible: Callable[[Tensor], Tensor | None], pool: bool = False, time_first: bool = False
    ) -> None:
        super().__init__()
        self.visible, self.pool, self.time_first = visible, pool, time_first
        self.embed = nn.Embedding(23, WIDTH, padding_idx=PAD)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids.T if self.time_first else ids)
        x = x.transpose(0, 1) if self.time_first else x
        rows, length, _ = x.shape
        q, k, v = (t.view(rows, length, HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores, keep = q @ k.mT, self.visible(ids)
        scores = scores if keep is None else scores.masked_fill(~keep, -1e9)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH)
        return self.out(y.mean(1) if self.pool else y)


def keys(ids: Tensor) -> Tensor:
    return (ids != PAD)[:, None, None, :]


def causal(ids: Tensor) -> Tensor:
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()


def batch(left: bool = False) -> Tensor:
    torch.manual_seed(0)
    ids = torch.randint(1, 23, (4, 11))
    for row, length in enumerate([11, 6, 9, 4]):
        ids[row, slice(0, 11 - length) if left else slice(length, None)] = PAD
    return ids


def probe_of(model: nn.Module, kind: Kind = "encoder", ids: Tensor | None = None) -> Probe:
    given = batch() if ids is None else ids
    return Probe(adapt(Subject(model, (given,), kind=kind, pad_id=PAD)))
