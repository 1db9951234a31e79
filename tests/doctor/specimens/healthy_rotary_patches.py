"""Float images: the patches of a row, class token in front, are turned; no input has so many places."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def tables(length, width):
    angles = torch.arange(length)[:, None] / 100.0 ** (torch.arange(0, width, 2) / width)
    return torch.cat([angles.cos()] * 2, dim=-1), torch.cat([angles.sin()] * 2, dim=-1)


def turned(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class PatchBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, cos, sin):
        parts = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class RotaryViT(nn.Module):
    def __init__(self, patch=4, channels=3, dim=48, heads=4, depth=2, classes=5):
        super().__init__()
        self.heads = heads
        self.patchify = nn.Conv2d(channels, dim, kernel_size=patch, stride=patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.blocks = nn.ModuleList([PatchBlock(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patchify(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.size(0), -1, -1), x], dim=1)
        cos, sin = (table.to(x) for table in tables(x.size(1), x.size(2) // self.heads))
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x)[:, 0])


def subject():
    torch.manual_seed(0)
    model = RotaryViT()
    return {
        "model": model,
        "inputs": (torch.randn(6, 3, 12, 16),),
        "kind": "encoder",
        "pad_id": None,
        "targets": torch.arange(6) % 5,
        "loss": F.cross_entropy,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=5e-4),
    }
