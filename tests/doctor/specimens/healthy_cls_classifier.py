"""Classifies by a class token in front of the words; pads are hidden as keys, it never is."""

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD = 0


class Encoder(nn.Module):
    """Post-norm layers with the library's attention, a float mask added to the scores."""

    def __init__(self, dim, heads, p):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, dropout=p, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.drop = nn.Dropout(p)

    def forward(self, x, penalty):
        x = self.norm1(x + self.drop(self.attn(x, x, x, key_padding_mask=penalty, need_weights=False)[0]))
        return self.norm2(x + self.drop(self.fc2(F.gelu(self.fc1(x)))))


class NewsClassifier(nn.Module):
    def __init__(self, vocab=58, dim=48, heads=4, depth=2, topics=5, longest=40, p=0.1):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.cls = nn.Parameter(torch.randn(1, 1, dim))
        self.place = nn.Embedding(longest, dim)
        self.norm, self.drop = nn.LayerNorm(dim), nn.Dropout(p)
        self.layers = nn.ModuleList([Encoder(dim, heads, p) for _ in range(depth)])
        self.pooler, self.topic = nn.Linear(dim, dim), nn.Linear(dim, topics)

    def forward(self, ids):
        x = torch.cat([self.cls.expand(ids.size(0), -1, -1), self.embed(ids)], dim=1)
        x = self.drop(self.norm(x + self.place(torch.arange(x.size(1), device=ids.device))))
        padding = F.pad(ids == PAD, (1, 0), value=False)
        penalty = torch.zeros(padding.shape, device=ids.device).masked_fill(padding, float("-inf"))
        for layer in self.layers:
            x = layer(x, penalty)
        return self.topic(torch.tanh(self.pooler(x[:, 0])))


def subject():
    torch.manual_seed(0)
    model = NewsClassifier()
    ids = torch.randint(1, 58, (6, 17))
    for row, n in enumerate([17, 4, 12, 8, 15, 6]):
        ids[row, n:] = PAD
    return {
        "model": model,
        "inputs": (ids,),
        "kind": "encoder",
        "pad_id": PAD,
        "targets": torch.tensor([0, 1, 2, 3, 4, 0]),
        "loss": F.cross_entropy,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=3e-4),
    }
