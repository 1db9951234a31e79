"""Depth 4 is fine; at depth 16 the loss sits at ln(vocabulary) minus a little."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CausalAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class PaperBlock(nn.Module):
    """Norm after the sum, as in the paper."""

    def __init__(self, dim, heads):
        super().__init__()
        self.attn = CausalAttention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        x = self.norm1(x + self.attn(x))
        return self.norm2(x + self.ff(x))


class TallModel(nn.Module):
    def __init__(self, vocab=34, dim=48, heads=4, depth=16, max_len=40):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocab, dim), nn.Embedding(max_len, dim)
        self.tower = nn.Sequential(*[PaperBlock(dim, heads) for _ in range(depth)])
        self.head = nn.Linear(dim, vocab)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, ids):
        x = self.embed(ids) + self.place(torch.arange(ids.size(1)))
        return self.head(self.tower(x))


def subject():
    torch.manual_seed(0)
    model = TallModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)  # BUG HW703
    # RIGHT optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    # RIGHT warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=200)
    ids = (torch.randint(0, 34, (6, 1)) + torch.arange(1, 7)[:, None] * torch.arange(19)) % 34
    return {
        "model": model,
        "inputs": (ids[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": ids[:, 1:],
        "loss": lambda logits, y: F.cross_entropy(logits.transpose(1, 2), y),
        "optimizer": optimizer,
    }
