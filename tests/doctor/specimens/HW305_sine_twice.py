"""Follows the annotated code line by line, learns order more slowly than the original."""

import math

import torch
import torch.nn as nn

PAD, VOCAB = 0, 41


def attention(query, key, value, mask):
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    scores = scores.masked_fill(mask == 0, -1e9)
    return torch.matmul(scores.softmax(dim=-1), value)


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, mask):
        n = x.size(0)
        q, k, v = (w(x).view(n, -1, self.h, self.d_k).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        mixed = attention(q, k, v, mask)
        return self.w_o(mixed.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k))


class PositionwiseFeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.w_2(self.w_1(x).relu())


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=128):
        super().__init__()
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.sin(position * div_term)  # BUG HW305
        self.register_buffer("pe", pe.unsqueeze(0))

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class Layer(nn.Module):
    def __init__(self, d_model, h, dropout):
        super().__init__()
        self.self_attn = MultiHeadedAttention(h, d_model)
        self.feed_forward = PositionwiseFeedForward(d_model, 4 * d_model)
        self.sublayer = nn.ModuleList([SublayerConnection(d_model, dropout) for _ in range(2)])

    def forward(self, x, mask):
        x = self.sublayer[0](x, lambda y: self.self_attn(y, mask))
        return self.sublayer[1](x, self.feed_forward)


class CountingModel(nn.Module):
    def __init__(self, d_model=48, h=4, n_layers=2, dropout=0.0):
        super().__init__()
        self.d_model = d_model
        self.lut = nn.Embedding(VOCAB, d_model)
        nn.init.normal_(self.lut.weight, std=d_model**-0.5)
        self.position = PositionalEncoding(d_model)
        self.layers = nn.ModuleList([Layer(d_model, h, dropout) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)
        self.generator = nn.Linear(d_model, VOCAB)

    def forward(self, ids):
        keep = (ids != PAD)[:, None, None, :]
        mask = keep & torch.ones(ids.size(1), ids.size(1), dtype=torch.bool, device=ids.device).tril()
        x = self.position(self.lut(ids) * math.sqrt(self.d_model))
        for layer in self.layers:
            x = layer(x, mask)
        return self.generator(self.norm(x))


def batch():
    start = torch.randint(0, VOCAB - 1, (6, 1))
    ids = 1 + (start + torch.tensor([[1], [2], [3], [5], [6], [8]]) * torch.arange(16)) % (VOCAB - 1)
    for row, length in enumerate([16, 11, 16, 7, 13, 9]):
        ids[row, length:] = PAD
    return ids


def subject():
    torch.manual_seed(0)
    model = CountingModel()
    ids = batch()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    return {
        "model": model,
        "inputs": (ids[:, :-1],),
        "kind": "decoder",
        "pad_id": PAD,
        "targets": ids[:, 1:],
        "loss": lambda out, y: criterion(out.reshape(-1, VOCAB), y.reshape(-1)),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9),
    }
