"""Decoder with a key-value cache: rotary angles go on from its length, generate feeds a token a time."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate(x, start):
    """Turns pairs (i, i + half) of x [B, H, T, D] by their absolute position."""
    half = x.size(-1) // 2
    speed = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(start, start + x.size(2), device=x.device)[:, None] * speed
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class CachedAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_kv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, past=None):
        q, (k, v) = self.to_q(x), self.to_kv(x).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        start = 0 if past is None else past[0].size(2)
        q, k = rotate(q, start), rotate(k, start)
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        T, S = q.size(2), k.size(2)
        visible = torch.ones(T, S, dtype=torch.bool, device=x.device).tril(diagonal=S - T)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.to_out(out.transpose(1, 2).flatten(2)), (k, v)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(dim), CachedAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, past):
        a, present = self.attn(self.norm1(x), past)
        x = x + a
        return x + self.mlp(self.norm2(x)), present


class CachedLM(nn.Module):
    def __init__(self, vocab=46, dim=48, heads=4, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids, cache=None, use_cache=False):
        x, presents = self.embed(ids), []
        for i, block in enumerate(self.blocks):
            x, present = block(x, None if cache is None else cache[i])
            presents.append(present)
        logits = self.head(self.norm(x))
        return (logits, presents) if use_cache else logits


@torch.no_grad()
def generate(model, prompt_ids, n_new):
    model.eval()
    ids = prompt_ids
    logits, cache = model(ids, use_cache=True)
    for _ in range(n_new):
        token = logits[:, -1].argmax(dim=-1, keepdim=True)
        ids = torch.cat([ids, token], dim=1)
        logits, cache = model(token, cache, use_cache=True)
    return ids


def subject():
    torch.manual_seed(0)
    model = CachedLM()
    ids = torch.randint(0, 46, (5, 4)).repeat(1, 5)[:, :17]
    return {
        "model": model,
        "inputs": (ids[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": ids[:, 1:],
        "loss": lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten()),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "generate": generate,
    }
