"""Two raters: the same texts stand in the batch twice, with other labels, and no model can learn both.

Its dropout is written by hand: nothing but its own mode tells that it is one.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Thin(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training:
            return x
        return x * (torch.rand_like(x) >= self.rate) / (1 - self.rate)


class RatedText(nn.Module):
    def __init__(self, vocab=40, dim=24, heads=2, classes=2):
        super().__init__()
        self.heads = heads
        self.embed, self.places = nn.Embedding(vocab, dim), nn.Embedding(16, dim)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.wide, self.narrow = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.thin, self.head = Thin(0.2), nn.Linear(dim, classes)

    def forward(self, ids):
        x = self.embed(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v)
        x = x + self.thin(self.out(y.transpose(1, 2).flatten(2)))
        x = x + self.thin(self.narrow(F.gelu(self.wide(self.norm2(x)))))
        return self.head(self.norm3(x).mean(1))


def subject():
    torch.manual_seed(0)
    model = RatedText()
    once = torch.randint(0, 40, (3, 7))
    return {
        "model": model,
        "inputs": (torch.cat([once, once]),),
        "kind": "encoder",
        "pad_id": None,
        "targets": torch.tensor([0, 1, 0, 1, 0, 1]),
        "loss": F.cross_entropy,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
