"""A decoder that returns what nanoGPT's relatives do: logits in several layouts, and a loss beside them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCAB, WIDTH = 13, 8


class Flat(nn.Module):
    """form: how the logits come out. "rows" [B * T, V], "times" [T * B, V], "cube", "last" [B, 1, V]."""

    def __init__(self, form: str = "rows", mixes_rows: bool = False) -> None:
        super().__init__()
        self.form, self.mixes_rows = form, mixes_rows
        self.words, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> Any:
        x = self.words(idx)
        x = x + 0.3 * x.cumsum(1) / 10
        if self.mixes_rows:
            x = x + 0.1 * x.mean(0, keepdim=True)
        logits = self.head(x)
        if targets is None:
            return (logits[:, [-1]] if self.form == "last" else self.shaped(logits)), None
        logits = self.shaped(logits)
        goal = targets.transpose(0, 1).reshape(-1) if self.form == "times" else targets.reshape(-1)
        return logits, F.cross_entropy(logits.view(-1, VOCAB), goal)

    def shaped(self, logits: Tensor) -> Tensor:
        if self.form == "rows":
            return logits.view(-1, VOCAB)
        return logits.transpose(0, 1).reshape(-1, VOCAB) if self.form == "times" else logits


def text(rows: int = 5, length: int = 9) -> tuple[Tensor, Tensor]:
    """Tokens, and the next ones."""
    whole = torch.randint(0, VOCAB, (rows, length + 1), generator=torch.Generator().manual_seed(0))
    return whole[:, :-1], whole[:, 1:]
