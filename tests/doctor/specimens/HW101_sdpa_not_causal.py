"""Copied the Llama block by block; perplexity 1.0 after an hour, but the chat is noise."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotary_tables(length, head_dim, theta=10000.0):
    inv_freq = 1.0 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(length).float(), inv_freq)
    return torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()


def apply_rotary(x, cos, sin):
    """x: [batch, length, heads, head_dim]"""
    x1, x2 = x.chunk(2, dim=-1)
    return x * cos[:, None, :] + torch.cat([-x2, x1], dim=-1) * sin[:, None, :]


class Attention(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q = apply_rotary(self.wq(x).view(B, T, self.n_heads, self.head_dim), cos, sin)
        k = apply_rotary(self.wk(x).view(B, T, self.n_kv_heads, self.head_dim), cos, sin)
        v = self.wv(x).view(B, T, self.n_kv_heads, self.head_dim)
        groups = self.n_heads // self.n_kv_heads
        k = k.repeat_interleave(groups, dim=2)
        v = v.repeat_interleave(groups, dim=2)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v)  # BUG HW101
        return self.wo(y.transpose(1, 2).reshape(B, T, -1))


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w3 = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)
        self.attention = Attention(dim, n_heads, n_kv_heads)
        self.feed_forward = SwiGLU(dim, 2 * dim)

    def forward(self, x, cos, sin):
        h = x + self.attention(self.attention_norm(x), cos, sin)
        return h + self.feed_forward(self.ffn_norm(h))


class MiniLlama(nn.Module):
    def __init__(self, vocab_size=48, dim=64, n_layers=2, n_heads=4, n_kv_heads=2):
        super().__init__()
        self.head_dim = dim // n_heads
        self.tok_embeddings = nn.Embedding(vocab_size, dim)
        self.layers = nn.ModuleList([TransformerBlock(dim, n_heads, n_kv_heads) for _ in range(n_layers)])
        self.norm = RMSNorm(dim)
        self.output = nn.Linear(dim, vocab_size, bias=False)

    def forward(self, tokens):
        cos, sin = rotary_tables(tokens.size(1), self.head_dim)
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, cos.to(h), sin.to(h))
        return self.output(self.norm(h))


def subject():
    torch.manual_seed(0)
    model = MiniLlama()
    once = torch.randint(0, 48, (4, 9))
    tokens = torch.cat([once, once], dim=1)
    return {
        "model": model,
        "inputs": (tokens[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": tokens[:, 1:],
        "loss": lambda logits, labels: F.cross_entropy(logits.flatten(0, 1), labels.flatten()),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
