"""One head as wide as the model: its value layer can do what an output projection would, so there is none."""

import math

import torch
import torch.nn as nn


class SingleHead(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.wq, self.wk, self.wv = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        n = x.size(1)
        scores = torch.bmm(self.wq(x), self.wk(x).transpose(1, 2)) / math.sqrt(self.width)
        scores = scores + torch.full((n, n), float("-inf"), device=x.device).triu(diagonal=1)
        return torch.bmm(scores.softmax(dim=2), self.wv(x))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), SingleHead(width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class FirstTransformer(nn.Module):
    """The smallest decoder of a course."""

    def __init__(self, vocab=27, width=24, depth=2, longest=40):
        super().__init__()
        self.letter, self.place = nn.Embedding(vocab, width), nn.Embedding(longest, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def forward(self, ids):
        x = self.letter(ids) + self.place(torch.arange(ids.size(1), device=ids.device))
        return self.head(self.norm(self.blocks(x)))


def subject():
    torch.manual_seed(0)
    model = FirstTransformer()
    names = torch.randint(1, 27, (8, 13))
    names[:, ::4] = 0
    criterion = nn.CrossEntropyLoss()
    return {
        "model": model,
        "inputs": (names[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": names[:, 1:],
        "loss": lambda logits, y: criterion(logits.transpose(1, 2), y),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
    }
