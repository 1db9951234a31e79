"""The decoder forgets what it has said itself and follows the source alone."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, START, STOP, SIZE = 0, 1, 2, 40


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, context, hidden):
        q, k, v = (
            w(t).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for w, t in ((self.wq, x), (self.wk, context), (self.wv, context))
        )
        scores = q @ k.mT / math.sqrt(q.size(-1))
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        return self.wo((weights @ v).transpose(1, 2).flatten(-2))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn = Attention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x, hidden):
        h = self.norm1(x)
        x = x + self.attn(h, h, hidden)
        return x + self.ff(self.norm2(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.self_attn, self.cross_attn = Attention(dim, heads), Attention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))

    def forward(self, y, memory, future, hidden):
        h = self.norm1(y)
        y = y + self.self_attn(h, h, future)
        y = self.cross_attn(self.norm2(y), memory, hidden)  # BUG HW401
        return y + self.ff(self.norm3(y))


class Translator(nn.Module):
    def __init__(self, dim=40, heads=4, depth=2, longest=24):
        super().__init__()
        self.src_words, self.tgt_words = nn.Embedding(SIZE, dim), nn.Embedding(SIZE, dim)
        self.src_places, self.tgt_places = nn.Embedding(longest, dim), nn.Embedding(longest, dim)
        self.encoder = nn.ModuleList([EncoderLayer(dim, heads) for _ in range(depth)])
        self.decoder = nn.ModuleList([DecoderLayer(dim, heads) for _ in range(depth)])
        self.enc_norm, self.dec_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.out = nn.Linear(dim, SIZE)

    def encode(self, src, hidden):
        x = self.src_words(src) + self.src_places(torch.arange(src.size(1)))
        for layer in self.encoder:
            x = layer(x, hidden)
        return self.enc_norm(x)

    def decode(self, tgt, memory, hidden):
        future = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        y = self.tgt_words(tgt) + self.tgt_places(torch.arange(tgt.size(1)))
        for layer in self.decoder:
            y = layer(y, memory, future, hidden)
        return self.out(self.dec_norm(y))

    def forward(self, src, tgt):
        hidden = (src == PAD)[:, None, None, :]
        memory = self.encode(src, hidden)
        return self.decode(tgt, memory, hidden)


def reversal_batch():
    src, tgt = torch.full((7, 8), PAD), torch.full((7, 10), PAD)
    for i, n in enumerate((8, 5, 6, 3, 8, 7, 4)):
        words = torch.randint(3, SIZE, (n,))
        src[i, :n] = words
        tgt[i, 0], tgt[i, 1 : n + 1], tgt[i, n + 1] = START, words.flip(0), STOP
    return src, tgt


def token_loss(logits, labels):
    return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=PAD)


def subject():
    torch.manual_seed(0)
    model = Translator()
    src, tgt = reversal_batch()
    decoder_input, labels = tgt[:, :-1], tgt[:, 1:]
    return {
        "model": model,
        "inputs": (src, decoder_input),
        "kind": "encoder-decoder",
        "pad_id": PAD,
        "targets": labels,
        "loss": token_loss,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
