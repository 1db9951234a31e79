"""Texts packed into rows: a block-diagonal causal mask keeps them apart, positions start anew."""

import torch
from torch import nn
from torch.nn import functional as F

EOS, VOCAB = 0, 37


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.head_width = heads, width // heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, visible):
        q, k, v = (
            f(x).unflatten(2, (self.heads, self.head_width)) for f in (self.query, self.key, self.value)
        )
        scores = torch.einsum("bqhc,bkhc->bhqk", q, k) * self.head_width**-0.5
        weights = scores.masked_fill(~visible[:, None], float("-inf")).softmax(dim=-1)
        return self.out(torch.einsum("bhqk,bkhc->bqhc", weights, v).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))

    def forward(self, x, visible):
        x = x + self.attention(self.norm1(x), visible)
        return x + self.mlp(self.norm2(x))


class PackedLM(nn.Module):
    """A text ends with EOS; the token behind it starts the next one."""

    def __init__(self, width=40, heads=5, depth=2, longest=64):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCAB, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(depth)])
        self.norm, self.logits = nn.LayerNorm(width), nn.Linear(width, VOCAB)

    def forward(self, ids):
        length = ids.size(1)
        index = torch.arange(length, device=ids.device)
        ends = (ids == EOS).long()
        text = ends.cumsum(dim=1) - ends  # number of the text a token belongs to
        same = text[:, :, None] == text[:, None, :]
        visible = same & (index[:, None] >= index[None, :])
        place = index - torch.where(same, index, length).amin(dim=2)
        x = self.token(ids) + self.place(place)
        for layer in self.layers:
            x = layer(x, visible)
        return self.logits(self.norm(x))


def subject():
    torch.manual_seed(0)
    model = PackedLM()
    rows = torch.randint(1, VOCAB, (6, 19))
    for row, ends in enumerate([(5, 11), (3, 8, 14), (9,), (6, 12), (4, 15), (7, 10)]):
        rows[row, list(ends)] = EOS
    return {
        "model": model,
        "inputs": (rows[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": rows[:, 1:],
        "loss": lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten()),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
