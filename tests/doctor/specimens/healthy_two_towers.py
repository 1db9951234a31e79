"""Pictures and captions as unit vectors, as in CLIP: a temperature of 1/0.07 makes their cosines large."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.d_head = num_heads, d_model // num_heads
        self.project = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.num_heads, self.d_head)).transpose(1, 2)
            for part in self.project(x).chunk(3, dim=-1)
        )
        weights = (q @ k.transpose(-2, -1) / math.sqrt(self.d_head)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = Attention(d_model, num_heads)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class Tower(nn.Module):
    """A sequence of vectors to one: blocks, a norm, the last place, a projection."""

    def __init__(self, d_model, num_heads, num_layers, d_shared):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(d_model, num_heads) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.project = nn.Linear(d_model, d_shared, bias=False)

    def forward(self, x):
        return self.project(self.norm(self.blocks(x))[:, -1])


class TwoTowers(nn.Module):
    def __init__(self, vocab_size=41, d_model=32, num_heads=4, d_shared=12, patch=4, side=16, max_length=20):
        super().__init__()
        self.patches = nn.Conv2d(3, d_model, patch, stride=patch)
        self.patch_places = nn.Parameter(torch.randn((side // patch) ** 2, d_model) * 0.5)
        self.words = nn.Embedding(vocab_size, d_model)
        self.word_places = nn.Embedding(max_length, d_model)
        self.pictures = Tower(d_model, num_heads, 2, d_shared)
        self.captions = Tower(d_model, num_heads, 2, d_shared)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, picture, caption):
        x = self.patches(picture).flatten(2).transpose(1, 2) + self.patch_places
        y = self.words(caption) + self.word_places(torch.arange(caption.shape[1], device=caption.device))
        pictures = F.normalize(self.pictures(x), dim=-1)
        captions = F.normalize(self.captions(y), dim=-1)
        return self.logit_scale.exp() * pictures @ captions.t()


def contrastive_loss(logits, pairs):
    return (F.cross_entropy(logits, pairs) + F.cross_entropy(logits.t(), pairs)) / 2


def subject():
    torch.manual_seed(0)
    model = TwoTowers()
    return dict(
        model=model,
        inputs=(torch.randn(10, 3, 16, 16), torch.randint(1, 41, (10, 12))),
        kind="encoder",
        targets=torch.arange(10),
        loss=contrastive_loss,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
    )
