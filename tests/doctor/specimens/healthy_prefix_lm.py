"""Prefix language model: the first part of a row is read in both directions, the rest from left to right.

It is neither an encoder nor a causal decoder, so `subject` says neither.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wqkv = nn.Linear(dim, 3 * dim)
        self.wo = nn.Linear(dim, dim)

    def forward(self, x, visible):
        q, k, v = self.wqkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.wo(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2, self.mlp = (
            nn.LayerNorm(dim),
            nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Linear(3 * dim, dim)),
        )

    def forward(self, x, visible):
        x = x + self.attn(self.norm1(x), visible)
        return x + self.mlp(self.norm2(x))


class PrefixLM(nn.Module):
    def __init__(self, vocab=42, dim=40, heads=4, depth=2, longest=64, prefix=6):
        super().__init__()
        self.prefix = prefix
        self.embed, self.place = nn.Embedding(vocab, dim), nn.Embedding(longest, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab)

    def forward(self, ids):
        n = ids.size(1)
        visible = torch.ones(n, n, dtype=torch.bool, device=ids.device).tril()
        visible[:, : self.prefix] = True
        x = self.embed(ids) + self.place(torch.arange(n, device=ids.device))
        for block in self.blocks:
            x = block(x, visible)
        return self.head(self.norm(x))


def subject():
    torch.manual_seed(0)
    return {"model": PrefixLM(), "inputs": (torch.randint(0, 42, (5, 14)),), "pad_id": None}
