"""Tags depend on how far the row is padded. The mask has the right shape."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD = 0


def sinusoids(length, width):
    place = torch.arange(length).float()[:, None]
    speed = torch.exp(-math.log(10000.0) * torch.arange(0, width, 2) / width)
    table = torch.empty(length, width)
    table[:, 0::2], table[:, 1::2] = torch.sin(place * speed), torch.cos(place * speed)
    return table


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj = nn.Linear(width, width), nn.Linear(width, width)
        self.v_proj, self.o_proj = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, keep):
        B, T, C = x.shape
        split = (B, T, self.heads, C // self.heads)
        q, k, v = (f(x).view(split).transpose(1, 2) for f in (self.q_proj, self.k_proj, self.v_proj))
        visible = keep[:, None, :, None].expand(B, 1, T, T)  # BUG HW108
        # RIGHT visible = keep[:, None, None, :].expand(B, 1, T, T)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, width, heads, p):
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(width), SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.ffn = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.drop = nn.Dropout(p)

    def forward(self, x, keep):
        x = x + self.drop(self.attn(self.norm1(x), keep))
        return x + self.drop(self.ffn(self.norm2(x)))


class Tagger(nn.Module):
    """A tag for every word."""

    def __init__(self, words=53, tags=7, width=32, heads=4, depth=2, p=0.1, longest=64):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=PAD)
        self.register_buffer("places", sinusoids(longest, width))
        self.layers = nn.ModuleList(EncoderLayer(width, heads, p) for _ in range(depth))
        self.norm, self.tag = nn.LayerNorm(width), nn.Linear(width, tags)

    def forward(self, words):
        keep = words != PAD
        x = self.embed(words) + self.places[: words.size(1)]
        for layer in self.layers:
            x = layer(x, keep)
        return self.tag(self.norm(x))


def sentences():
    words = torch.randint(1, 53, (6, 15))
    lengths = torch.tensor([15, 6, 11, 4, 9, 13])
    words = words * (torch.arange(15) < lengths[:, None])
    tags = (words + words.roll(-1, 1) * 2) % 7  # a word's tag depends on the word after it
    return words, tags.masked_fill(words == PAD, -100)


def subject():
    torch.manual_seed(0)
    model = Tagger()
    words, tags = sentences()
    return {
        "model": model,
        "inputs": (words,),
        "kind": "encoder",
        "pad_id": PAD,
        "targets": tags,
        "loss": lambda out, gold: F.cross_entropy(out.transpose(1, 2), gold, ignore_index=-100),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
    }
