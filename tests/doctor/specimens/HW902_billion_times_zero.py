"""Float32 is fine. In half precision every logit is nan."""

import math

import torch
import torch.nn.functional as F
from torch import nn

PAD, MASK, VOCAB = 0, 1, 48


class SelfAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.size = heads, hidden // heads
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.dense = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)

    def shape(self, x):
        return x.view(x.size(0), x.size(1), self.heads, self.size).permute(0, 2, 1, 3)

    def forward(self, h, bias):
        q, k, v = self.shape(self.query(h)), self.shape(self.key(h)), self.shape(self.value(h))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size)
        probs = (scores + bias).softmax(-1)
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).flatten(2)
        return self.dense(context)


class EncoderLayer(nn.Module):
    def __init__(self, hidden, heads, p=0.0):
        super().__init__()
        self.attention = SelfAttention(hidden, heads)
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-5)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.output_norm = nn.LayerNorm(hidden, eps=1e-5)
        self.drop = nn.Dropout(p)

    def forward(self, h, bias):
        h = self.attention_norm(h + self.drop(self.attention(h, bias)))
        return self.output_norm(h + self.drop(self.down(F.gelu(self.up(h)))))


class Embeddings(nn.Module):
    def __init__(self, hidden, max_len):
        super().__init__()
        self.word = nn.Embedding(VOCAB, hidden, padding_idx=PAD)
        self.position = nn.Embedding(max_len, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-5)

    def forward(self, ids):
        places = torch.arange(ids.size(1), device=ids.device)
        return self.norm(self.word(ids) + self.position(places))


class HalfModel(nn.Module):
    def __init__(self, hidden=48, heads=4, depth=2, max_len=32):
        super().__init__()
        self.embeddings = Embeddings(hidden, max_len)
        self.layers = nn.ModuleList([EncoderLayer(hidden, heads) for _ in range(depth)])
        self.decoder = nn.Linear(hidden, VOCAB)

    def forward(self, ids):
        h = self.embeddings(ids)
        pad = (ids == PAD)[:, None, None].to(h.dtype)
        bias = pad * torch.tensor(-1e9).to(h.dtype)  # BUG HW902
        # RIGHT bias = pad * torch.finfo(h.dtype).min
        for layer in self.layers:
            h = layer(h, bias)
        return self.decoder(h)


def mlm_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def subject():
    torch.manual_seed(0)
    model = HalfModel().half()
    clean = (
        2
        + (torch.randint(0, 46, (6, 1)) + torch.tensor([[1], [2], [3], [5], [7], [4]]) * torch.arange(15))
        % 46
    )
    for row, n in enumerate([15, 9, 15, 6, 12, 8]):
        clean[row, n:] = PAD
    hidden = (torch.rand(clean.shape) < 0.2) & (clean != PAD)
    hidden[:, 2] = True
    return {
        "model": model,
        "inputs": (clean.masked_fill(hidden, MASK),),
        "kind": "encoder",
        "pad_id": PAD,
        "targets": clean.masked_fill(~hidden, -100),
        "loss": mlm_loss,
    }
