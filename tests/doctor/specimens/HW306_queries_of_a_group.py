"""Query heads that share keys lie below one another in the products; of them the queries alone are turned."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def tables(length, width):
    angles = torch.arange(length)[:, None] / 10_000.0 ** (torch.arange(0, width, 2) / width)
    return torch.cat([angles.cos()] * 2, dim=-1), torch.cat([angles.sin()] * 2, dim=-1)


def turned(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class GroupedAttention(nn.Module):
    def __init__(self, dim, heads, shared):
        super().__init__()
        self.heads, self.shared, self.width = heads, shared, dim // heads
        self.query = nn.Linear(dim, dim, bias=False)
        self.key, self.value = (nn.Linear(dim, shared * self.width, bias=False) for _ in range(2))
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q = self.query(x).view(B, T, self.heads, self.width).transpose(1, 2)
        k = self.key(x).view(B, T, self.shared, self.width).transpose(1, 2)
        v = self.value(x).view(B, T, self.shared, self.width).transpose(1, 2)
        q = turned(q, cos, sin)  # BUG HW306
        rows = self.heads // self.shared * T
        scores = (q.reshape(B, self.shared, rows, self.width) @ k.mT).view(B, self.heads, T, T)
        later = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        weights = (scores * self.width**-0.5).masked_fill(later, -torch.inf).softmax(-1)
        y = (weights.view(B, self.shared, rows, T) @ v).view(B, self.heads, T, self.width)
        return self.out(y.transpose(1, 2).reshape(B, T, -1))


class GroupedBlock(nn.Module):
    def __init__(self, dim, heads, shared):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)
        self.attention = GroupedAttention(dim, heads, shared)
        self.wide, self.narrow = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.narrow(F.silu(self.wide(self.norm2(x))))


class GroupedLM(nn.Module):
    def __init__(self, vocab=43, dim=48, heads=6, shared=2, depth=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([GroupedBlock(dim, heads, shared) for _ in range(depth)])
        self.norm, self.head = nn.RMSNorm(dim, eps=1e-6), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        cos, sin = (table.to(x) for table in tables(ids.size(1), x.size(2) // self.heads))
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def subject():
    torch.manual_seed(0)
    model = GroupedLM()
    ids = torch.randint(0, 43, (5, 15))
    return {
        "model": model,
        "inputs": (ids[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": ids[:, 1:],
        "loss": lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten()),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
