"""Added a norm wherever I could for stability; the feed-forward layers now learn slowly."""

import torch
from torch import einsum, nn
from torch.nn import functional as F


def split_heads(t, heads):
    return t.unflatten(-1, (heads, -1)).transpose(1, 2)


class PreNorm(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fn = fn

    def forward(self, x):
        return self.fn(self.norm(x))


class Residual(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return x + self.fn(x)


class CausalAttention(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.to_q = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(dim, 2 * heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim)

    def forward(self, x):
        n = x.shape[1]
        q = split_heads(self.to_q(x), self.heads) * self.scale
        k, v = (split_heads(t, self.heads) for t in self.to_kv(x).chunk(2, dim=-1))
        sim = einsum("b h i d, b h j d -> b h i j", q, k)
        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)
        sim = sim.masked_fill(future, -torch.finfo(sim.dtype).max)
        out = einsum("b h i j, b h j d -> b h i d", sim.softmax(dim=-1), v)
        return self.to_out(out.transpose(1, 2).flatten(2))


def feed_forward(dim, mult=4):
    inner = dim * mult
    return nn.Sequential(
        nn.Linear(dim, inner),
        nn.LayerNorm(inner),  # BUG HW409
        # RIGHT
        nn.GELU(),
        nn.Linear(inner, dim),
    )


class Decoder(nn.Module):
    def __init__(self, num_tokens=30, dim=40, depth=3, heads=5, dim_head=8, max_seq_len=32):
        super().__init__()
        self.token_emb = nn.Embedding(num_tokens, dim)
        self.pos_emb = nn.Parameter(torch.randn(max_seq_len, dim))
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(Residual(PreNorm(dim, CausalAttention(dim, heads, dim_head))))
            self.layers.append(Residual(PreNorm(dim, feed_forward(dim))))
        self.norm = nn.LayerNorm(dim)
        self.to_logits = nn.Linear(dim, num_tokens, bias=False)

    def forward(self, x):
        x = self.token_emb(x) + self.pos_emb[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.to_logits(self.norm(x))


def lm_loss(logits, labels):
    return F.cross_entropy(logits.transpose(1, 2), labels)


def subject():
    torch.manual_seed(0)
    net = Decoder()
    first = torch.randint(0, 30, (7, 1))
    seq = (first + torch.tensor([1, 2, 4, 7, 9, 11, 13])[:, None] * torch.arange(15)) % 30
    return {
        "model": net,
        "inputs": (seq[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": seq[:, 1:],
        "loss": lm_loss,
        "optimizer": torch.optim.Adam(net.parameters(), lr=5e-4),
    }
