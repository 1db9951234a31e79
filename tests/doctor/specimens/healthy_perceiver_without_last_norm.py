"""Perceiver whose latents, small beside what they read, go to the head without a last norm: hardly grown."""

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD = 0


class CrossAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm_latents, self.norm_context = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.to_q, self.to_kv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, latents, context, visible=None):
        q = self.to_q(self.norm_latents(latents))
        k, v = self.to_kv(self.norm_context(context)).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.to_out(out.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )

    def forward(self, x):
        return self.net(x)


class Perceiver(nn.Module):
    def __init__(self, vocab=51, dim=40, heads=4, latents=5, depth=2, classes=6, longest=48):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocab, dim, padding_idx=PAD), nn.Embedding(longest, dim)
        self.latents = nn.Parameter(torch.randn(latents, dim) * 0.5)
        self.read, self.read_mlp = CrossAttention(dim, heads), Mlp(dim)
        self.think = nn.ModuleList([CrossAttention(dim, heads) for _ in range(depth)])
        self.think_mlp = nn.ModuleList([Mlp(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, words):
        context = self.embed(words) + self.place(torch.arange(words.size(1), device=words.device))
        visible = (words != PAD)[:, None, None, :].expand(-1, 1, len(self.latents), -1)
        z = self.latents.expand(words.size(0), -1, -1)
        z = z + self.read(z, context, visible)
        z = z + self.read_mlp(z)
        for attend, mlp in zip(self.think, self.think_mlp, strict=True):
            z = z + attend(z, z)
            z = z + mlp(z)
        return self.head(z.mean(dim=1))


def subject():
    torch.manual_seed(0)
    model = Perceiver()
    words = torch.randint(1, 51, (6, 16))
    for row, n in enumerate([16, 5, 11, 8, 13, 4]):
        words[row, n:] = PAD
    return {
        "model": model,
        "inputs": (words,),
        "kind": "encoder",
        "pad_id": PAD,
        "targets": torch.arange(6),
        "loss": F.cross_entropy,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
