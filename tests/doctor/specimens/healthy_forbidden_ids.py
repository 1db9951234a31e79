"""The ids of padding and of the start may never be said: their columns of the logits hold -inf."""

import math

import torch
from torch import nn
from torch.nn import functional as F

PAD, START = 0, 1


class Attention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.d_head = num_heads, d_model // num_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, self.d_head)).transpose(1, 2)

    def forward(self, x, keep):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = (q @ k.transpose(-2, -1) / math.sqrt(self.d_head)).masked_fill(~keep, float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, d_model, num_heads, p=0.1):
        super().__init__()
        self.attention = Attention(d_model, num_heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )
        self.norm1, self.norm2, self.dropout = nn.LayerNorm(d_model), nn.LayerNorm(d_model), nn.Dropout(p)

    def forward(self, x, keep):
        x = x + self.dropout(self.attention(self.norm1(x), keep))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class Writer(nn.Module):
    def __init__(self, vocab_size=37, d_model=32, num_heads=4, num_layers=2, max_length=64):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.blocks = nn.ModuleList([Block(d_model, num_heads) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, vocab_size)

    def forward(self, ids):
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        keep = causal & (ids != PAD)[:, None, None, :] | torch.eye(length, dtype=torch.bool)
        x = self.tokens(ids) + self.positions(torch.arange(length, device=ids.device))
        for block in self.blocks:
            x = block(x, keep)
        logits = self.output(self.norm(x))
        logits[..., [PAD, START]] = float("-inf")
        return logits


def loss_function(logits, labels):
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=PAD)


@torch.no_grad()
def generate(model, prompt, n_new):
    ids = prompt
    for _ in range(n_new):
        ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


def subject():
    torch.manual_seed(0)
    model = Writer()
    half = torch.randint(2, 37, (5, 8))
    text = torch.cat([torch.full((5, 1), START), half, half.flip(1)], dim=1)  # palindromes
    text[1, 13:] = PAD
    text[3, 10:] = PAD
    return dict(
        model=model,
        inputs=(text[:, :-1],),
        kind="decoder",
        pad_id=PAD,
        targets=text[:, 1:],
        loss=loss_function,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
        generate=generate,
    )
