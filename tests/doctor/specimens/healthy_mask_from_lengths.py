"""The mask is made from the length of each sentence, which is an input of its own."""

import math

import torch
import torch.nn.functional as F
from torch import nn

PAD, WORDS, TAGS = 0, 45, 7


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, padding_mask):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        scores = scores.masked_fill(padding_mask[:, None, None, :], float("-inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.attention = SelfAttention(dim, heads)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.dropout = nn.Dropout(p)

    def forward(self, x, padding_mask):
        x = x + self.dropout(self.attention(self.norm1(x), padding_mask))
        return x + self.dropout(self.ffn(self.norm2(x)))


def sequence_mask(lengths, max_len):
    """True beyond the end of each row."""
    places = torch.arange(max_len, device=lengths.device)
    return places[None, :] >= lengths[:, None]


class Tagger(nn.Module):
    """A tag for each word; `lengths` [B] tells how many words each sentence has."""

    def __init__(self, dim=40, heads=4, depth=2, longest=64, p=0.1):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, dim), nn.Embedding(longest, dim)
        self.layers = nn.ModuleList([Layer(dim, heads, p) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.tags = nn.Linear(dim, TAGS)

    def forward(self, tokens, lengths):
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        padding_mask = sequence_mask(lengths, tokens.size(1))
        for layer in self.layers:
            x = layer(x, padding_mask)
        return self.tags(self.norm(x))


def collate(sentences):
    lengths = torch.tensor([len(s) for s in sentences])
    tokens = nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PAD)
    return tokens, lengths


def subject():
    torch.manual_seed(0)
    model = Tagger()
    tokens, lengths = collate([torch.randint(1, WORDS, (n,)) for n in (15, 9, 12, 6, 13)])
    tags = (tokens * 3 + tokens.roll(1, 1)) % TAGS
    return {
        "model": model,
        "inputs": (tokens, lengths),
        "kind": "encoder",
        "pad_id": PAD,
        "targets": tags.masked_fill(tokens == PAD, -100),
        "loss": lambda logits, tags: F.cross_entropy(logits.flatten(0, 1), tags.flatten()),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
