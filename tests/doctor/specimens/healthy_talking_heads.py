"""Talking heads: scores and weights are mixed across heads by small learned matrices. The mask lies
between.
"""

import torch
import torch.nn.functional as F
from torch import einsum, nn


def default(value, fallback):
    return fallback if value is None else value


class FeedForward(nn.Module):
    def __init__(self, dim, mult=4, dropout=0.0):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.net = nn.Sequential(
            nn.Linear(dim, dim * mult), nn.GELU(), nn.Dropout(dropout), nn.Linear(dim * mult, dim)
        )

    def forward(self, x):
        return self.net(self.norm(x))


class Attention(nn.Module):
    def __init__(self, dim, heads=3, dim_head=None):
        super().__init__()
        dim_head = default(dim_head, dim // heads)
        self.heads, self.dim_head = heads, dim_head
        self.mix_scores = nn.Parameter(torch.eye(heads) + 0.1 * torch.randn(heads, heads))
        self.mix_weights = nn.Parameter(torch.eye(heads) + 0.1 * torch.randn(heads, heads))
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, heads * dim_head * 3, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.reshape(b, n, self.heads, -1) for t in self.to_qkv(self.norm(x)).chunk(3, dim=-1))
        sim = einsum("b i h d, b j h d -> b h i j", q, k) * self.dim_head**-0.5
        sim = einsum("b h i j, g h -> b g i j", sim, self.mix_scores)
        future = torch.ones((n, n), dtype=torch.bool, device=x.device).triu(1)
        sim = sim.masked_fill(future, -torch.finfo(sim.dtype).max)
        attn = sim.softmax(dim=-1)
        attn = einsum("b h i j, g h -> b g i j", attn, self.mix_weights)
        out = einsum("b h i j, b j h d -> b i h d", attn, v)
        return self.to_out(out.reshape(b, n, -1))


class Transformer(nn.Module):
    def __init__(self, *, num_tokens=52, dim=48, depth=2, max_seq_len=40):
        super().__init__()
        self.token_emb = nn.Embedding(num_tokens, dim)
        self.pos_emb = nn.Embedding(max_seq_len, dim)
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(nn.ModuleList([Attention(dim), FeedForward(dim)]))
        self.norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, num_tokens, bias=False)

    def forward(self, x):
        n, device = x.shape[1], x.device
        x = self.token_emb(x) + self.pos_emb(torch.arange(n, device=device))
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        return self.to_logits(self.norm(x))


def subject():
    torch.manual_seed(42)
    model = Transformer()
    phrase = torch.randint(0, 52, (8, 6))
    seq = phrase.repeat(1, 3)[:, :16]
    return {
        "model": model,
        "inputs": (seq[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": seq[:, 1:],
        "loss": lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten()),
        "optimizer": torch.optim.Adam(model.parameters(), lr=5e-4),
    }
