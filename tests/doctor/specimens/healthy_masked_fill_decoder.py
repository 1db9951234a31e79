"""Mask of ones and zeros, filled with -1e9 where zero, made once and handed down to every block."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.d_model, self.num_heads, self.d_head = d_model, num_heads, d_model // num_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def split(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, self.num_heads, self.d_head).transpose(1, 2)

    def forward(self, x, mask):
        batch, length, _ = x.shape
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_head)
        scores = scores.masked_fill(mask == 0, -1e9)
        weights = F.softmax(scores, dim=-1)
        mixed = torch.matmul(weights, v)
        mixed = mixed.transpose(1, 2).reshape(batch, length, self.d_model)
        return self.out(mixed)


class DecoderBlock(nn.Module):
    def __init__(self, d_model, num_heads, p=0.1):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.ReLU(), nn.Linear(4 * d_model, d_model)
        )
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(p)

    def forward(self, x, mask):
        x = x + self.dropout(self.attention(self.norm1(x), mask))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class TinyDecoder(nn.Module):
    def __init__(self, vocab_size=36, d_model=32, num_heads=4, num_layers=2, max_length=64):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.blocks = nn.ModuleList([DecoderBlock(d_model, num_heads) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, vocab_size)

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.tril(torch.ones(length, length, device=ids.device))
        x = self.tokens(ids) + self.positions(torch.arange(length, device=ids.device))
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.norm(x))


def loss_function(logits, labels):
    return F.cross_entropy(logits.transpose(1, 2), labels)


def subject():
    torch.manual_seed(0)
    model = TinyDecoder()
    half = torch.randint(0, 36, (5, 8))
    text = torch.cat([half, half.flip(1)], dim=1)  # palindromes
    return dict(
        model=model,
        inputs=(text[:, :-1],),
        kind="decoder",
        pad_id=None,
        targets=text[:, 1:],
        loss=loss_function,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
    )
