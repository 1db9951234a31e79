"""A method of its own reads word after word, forward is for training: what is generated loops at once."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CachedSelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(dim, 3 * dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, past):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.to_qkv(x).chunk(3, dim=-1))
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        s = k.size(2)
        visible = torch.ones(t, s, dtype=torch.bool, device=x.device).tril(s - t)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.to_out(y.transpose(1, 2).reshape(b, t, d)), (k, v)


class CachedBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = CachedSelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, past=None):
        a, present = self.attn(self.norm1(x), past)
        x = x + a
        return x + self.mlp(self.norm2(x)), present


class ReadingModel(nn.Module):
    def __init__(self, vocab=46, dim=40, heads=4, depth=2, max_len=64):
        super().__init__()
        self.words = nn.Embedding(vocab, dim)
        self.places = nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList([CachedBlock(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self._vectors(ids, [], 0))

    def read_on(self, ids, kept):
        """The scores of the next word; kept: keys and values of every block, replaced here."""
        seen = len(kept)  # BUG HW310
        return self.head(self._vectors(ids, kept, seen)[:, -1])

    def _vectors(self, ids, kept, seen):
        x = self.words(ids) + self.places(torch.arange(seen, seen + ids.size(1), device=ids.device))
        before = list(kept) or [None] * len(self.blocks)
        kept.clear()
        for block, past in zip(self.blocks, before, strict=True):
            x, present = block(x, past)
            kept.append(present)
        return self.norm(x)


@torch.no_grad()
def generate(model, prompt_ids, n_new):
    was_training = model.training
    model.eval()
    ids, step, kept = prompt_ids, prompt_ids, []
    for _ in range(n_new):
        step = model.read_on(step, kept).argmax(dim=-1, keepdim=True)
        ids = torch.cat([ids, step], dim=1)
    model.train(was_training)
    return ids


def loss_fn(logits, targets):
    return F.cross_entropy(logits.transpose(1, 2), targets)


def subject():
    torch.manual_seed(0)
    model = ReadingModel()
    ids = (torch.randint(0, 46, (5, 1)) + torch.tensor([[1], [3], [4], [6], [9]]) * torch.arange(17)) % 46
    return {
        "model": model,
        "inputs": (ids[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": ids[:, 1:],
        "loss": loss_fn,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
        "generate": generate,
    }
