"""Encoder-decoder on the fused kernel; target pads stay unmasked, since a causal row never sees them."""

import torch
import torch.nn.functional as F
from torch import nn

PAD, START, STOP = 0, 1, 2


class Attention(nn.Module):
    """Queries from x, keys and values from `context`; `visible` is True where a query may look."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim)
        self.to_kv = nn.Linear(dim, 2 * dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x, context, visible=None):
        q, k, v = self.to_q(x), *self.to_kv(context).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.to_out(out.transpose(1, 2).flatten(2))


def mlp(dim):
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))


class EncoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm, self.attn, self.mlp = nn.LayerNorm(dim), Attention(dim, heads), mlp(dim)

    def forward(self, x, visible):
        h = self.norm(x)
        x = x + self.attn(h, h, visible)
        return x + self.mlp(x)


class DecoderBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.self_attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.norm2, self.cross_attn = nn.LayerNorm(dim), Attention(dim, heads)
        self.mlp = mlp(dim)

    def forward(self, y, memory, causal, source_visible):
        h = self.norm1(y)
        y = y + self.self_attn(h, h, causal)
        h = self.norm2(y)
        y = y + self.cross_attn(h, memory, source_visible)
        return y + self.mlp(y)


class Translator(nn.Module):
    def __init__(self, src_vocab=38, tgt_vocab=30, dim=40, heads=4, depth=2, longest=48):
        super().__init__()
        self.src_embed, self.src_place = nn.Embedding(src_vocab, dim), nn.Embedding(longest, dim)
        self.tgt_embed, self.tgt_place = nn.Embedding(tgt_vocab, dim), nn.Embedding(longest, dim)
        self.encoder = nn.ModuleList([EncoderBlock(dim, heads) for _ in range(depth)])
        self.decoder = nn.ModuleList([DecoderBlock(dim, heads) for _ in range(depth)])
        self.memory_norm, self.final_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.to_words = nn.Linear(dim, tgt_vocab)

    def forward(self, source, target):
        S, T = source.size(1), target.size(1)
        source_visible = (source != PAD).view(-1, 1, 1, S)
        causal = torch.ones(T, T, dtype=torch.bool, device=target.device).tril()
        x = self.src_embed(source) + self.src_place(torch.arange(S, device=source.device))
        for block in self.encoder:
            x = block(x, source_visible)
        memory = self.memory_norm(x)
        y = self.tgt_embed(target) + self.tgt_place(torch.arange(T, device=target.device))
        for block in self.decoder:
            y = block(y, memory, causal, source_visible)
        return self.to_words(self.final_norm(y))


def pairs(count=7):
    source, target = torch.zeros(count, 10, dtype=torch.long), torch.zeros(count, 13, dtype=torch.long)
    for row, n in enumerate([10, 5, 8, 3, 6, 9, 4][:count]):
        source[row, :n] = torch.randint(3, 38, (n,))
        target[row, : n + 2] = torch.cat(
            [torch.tensor([START]), source[row, :n] % 27 + 3, torch.tensor([STOP])]
        )
    return source, target


def subject():
    torch.manual_seed(0)
    model = Translator()
    source, target = pairs()
    return {
        "model": model,
        "inputs": (source, target[:, :-1]),
        "kind": "encoder-decoder",
        "pad_id": PAD,
        "targets": target[:, 1:],
        "loss": lambda logits, words: F.cross_entropy(
            logits.flatten(0, 1), words.flatten(), ignore_index=PAD
        ),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
