"""T5: one relative bias for all layers, RMSNorm, and no scale, since the weights are drawn for that."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, EOS, VOCAB = 0, 1, 40


class T5LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class T5Attention(nn.Module):
    def __init__(self, d_model, n_heads, d_kv):
        super().__init__()
        self.n_heads, self.d_kv = n_heads, d_kv
        inner = n_heads * d_kv
        self.q, self.k = nn.Linear(d_model, inner, bias=False), nn.Linear(d_model, inner, bias=False)
        self.v, self.o = nn.Linear(d_model, inner, bias=False), nn.Linear(inner, d_model, bias=False)
        nn.init.normal_(self.q.weight, std=(d_model * d_kv) ** -0.5)
        for linear in (self.k, self.v):
            nn.init.normal_(linear.weight, std=d_model**-0.5)
        nn.init.normal_(self.o.weight, std=inner**-0.5)

    def forward(self, x, source, bias):
        split = (self.n_heads, self.d_kv)
        q, k, v = (
            t.unflatten(-1, split).transpose(1, 2) for t in (self.q(x), self.k(source), self.v(source))
        )
        scores = torch.matmul(q, k.transpose(3, 2)) + bias
        return self.o(torch.matmul(F.softmax(scores, dim=-1), v).transpose(1, 2).flatten(2))


class T5Block(nn.Module):
    def __init__(self, d_model, n_heads, d_kv, decoder):
        super().__init__()
        self.norm1, self.self_attention = T5LayerNorm(d_model), T5Attention(d_model, n_heads, d_kv)
        if decoder:
            self.norm2, self.cross_attention = T5LayerNorm(d_model), T5Attention(d_model, n_heads, d_kv)
        self.norm3 = T5LayerNorm(d_model)
        self.wi, self.wo = (
            nn.Linear(d_model, 2 * d_model, bias=False),
            nn.Linear(2 * d_model, d_model, bias=False),
        )

    def forward(self, x, bias, memory=None, memory_bias=None):
        h = self.norm1(x)
        x = x + self.self_attention(h, h, bias)
        if memory is not None:
            x = x + self.cross_attention(self.norm2(x), memory, memory_bias)
        return x + self.wo(F.relu(self.wi(self.norm3(x))))


class Stack(nn.Module):
    def __init__(self, d_model, n_heads, d_kv, depth, decoder, buckets=16, farthest=32):
        super().__init__()
        self.decoder, self.buckets, self.farthest = decoder, buckets, farthest
        self.relative_attention_bias = nn.Embedding(buckets, n_heads)
        self.blocks = nn.ModuleList([T5Block(d_model, n_heads, d_kv, decoder) for _ in range(depth)])
        self.final_layer_norm = T5LayerNorm(d_model)

    def position_bias(self, n):
        """Near distances have a bucket each, far ones share logarithmically wider ones. [1, H, n, n]"""
        distance = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        buckets, start = self.buckets, torch.zeros_like(distance)
        if self.decoder:
            distance = (-distance).clamp(min=0)
        else:
            buckets = buckets // 2
            start, distance = (distance > 0).long() * buckets, distance.abs()
        exact = buckets // 2
        far = torch.log(distance.clamp(min=1) / exact) / math.log(self.farthest / exact) * (buckets - exact)
        far = (exact + far.long()).clamp(max=buckets - 1)
        bucket = start + torch.where(distance < exact, distance, far)
        return self.relative_attention_bias(bucket.to(self.relative_attention_bias.weight.device)).permute(
            2, 0, 1
        )[None]

    def forward(self, x, mask, memory=None, memory_mask=None):
        bias = self.position_bias(x.size(1)) + mask
        for block in self.blocks:
            x = block(x, bias, memory, memory_mask)
        return self.final_layer_norm(x)


class T5(nn.Module):
    def __init__(self, d_model=48, n_heads=4, d_kv=12, depth=2):
        super().__init__()
        self.shared = nn.Embedding(VOCAB, d_model)
        self.encoder = Stack(d_model, n_heads, d_kv, depth, decoder=False)
        self.decoder = Stack(d_model, n_heads, d_kv, depth, decoder=True)
        self.lm_head = nn.Linear(d_model, VOCAB, bias=False)

    def forward(self, input_ids, decoder_input_ids):
        n = decoder_input_ids.size(1)
        lowest = torch.finfo(torch.float32).min
        padding = (input_ids == PAD)[:, None, None, :].float() * lowest
        future = torch.full((n, n), lowest, device=input_ids.device).triu(1)
        memory = self.encoder(self.shared(input_ids), padding)
        return self.lm_head(self.decoder(self.shared(decoder_input_ids), future, memory, padding))


def subject():
    torch.manual_seed(0)
    model = T5()
    source = torch.randint(2, VOCAB, (6, 11))
    target = torch.zeros(6, 9, dtype=torch.long)
    for row, n in enumerate([11, 4, 8, 6, 10, 5]):
        source[row, n:] = PAD
        target[row, 1 : n // 2 + 2] = source[row, : n // 2 + 1]
        target[row, n // 2 + 2] = EOS
    return {
        "model": model,
        "inputs": {"input_ids": source, "decoder_input_ids": target[:, :-1]},  # the pad id starts the decoder
        "kind": "encoder-decoder",
        "pad_id": PAD,
        "targets": target[:, 1:],
        "loss": lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=PAD),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
