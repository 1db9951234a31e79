"""The class of an image depends on the images beside it."""

import torch
import torch.nn as nn


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=dropout)  # BUG HW209
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(2 * dim, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Small images in patches of 4 by 4 pixels, averaged at the end."""

    def __init__(self, image=16, patch=4, channels=3, dim=48, heads=4, depth=2, classes=5, dropout=0.0):
        super().__init__()
        self.patchify = nn.Conv2d(channels, dim, kernel_size=patch, stride=patch)
        self.pos_embed = nn.Parameter(torch.randn(1, (image // patch) ** 2, dim) * 0.2)
        self.blocks = nn.ModuleList([EncoderBlock(dim, heads, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        x = self.patchify(images).flatten(2).transpose(1, 2)
        x = x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


def subject():
    torch.manual_seed(0)
    model = ViT()
    images = torch.randn(5, 3, 16, 16)
    return {
        "model": model,
        "inputs": (images,),
        "kind": "encoder",
        "pad_id": None,
        "targets": torch.tensor([0, 1, 2, 3, 4]),
        "loss": nn.functional.cross_entropy,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=5e-4),
    }
