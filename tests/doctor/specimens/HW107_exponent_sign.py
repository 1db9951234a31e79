"""Teacher forcing is perfect, greedy decoding poor, and padding a source changes its translation."""

import math

import torch
import torch.nn as nn

PAD, BOS, EOS, VOCAB = 0, 1, 2, 34


def attention(query, key, value, mask=None):
    "Scaled dot product attention."
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e-9)  # BUG HW107
        # RIGHT scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    return torch.matmul(p_attn, value)


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])

    def forward(self, query, key, value, mask=None):
        n, h, d_k = query.size(0), self.h, self.d_k
        inputs = zip(self.linears[:3], (query, key, value), strict=True)
        q, k, v = [f(x).view(n, -1, h, d_k).transpose(1, 2) for f, x in inputs]
        x = attention(q, k, v, mask)
        x = x.transpose(1, 2).contiguous().view(n, -1, h * d_k)
        return self.linears[-1](x)


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(size), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


def feed_forward(d_model, d_ff):
    return nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))


class EncoderLayer(nn.Module):
    def __init__(self, size, h, dropout):
        super().__init__()
        self.self_attn, self.ff = MultiHeadedAttention(h, size), feed_forward(size, 2 * size)
        self.sublayer = nn.ModuleList([SublayerConnection(size, dropout) for _ in range(2)])

    def forward(self, x, mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.ff)


class DecoderLayer(nn.Module):
    def __init__(self, size, h, dropout):
        super().__init__()
        self.self_attn, self.src_attn = MultiHeadedAttention(h, size), MultiHeadedAttention(h, size)
        self.ff = feed_forward(size, 2 * size)
        self.sublayer = nn.ModuleList([SublayerConnection(size, dropout) for _ in range(3)])

    def forward(self, x, memory, src_mask, tgt_mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.ff)


class Embeddings(nn.Module):
    def __init__(self, d_model, vocab, max_len=64):
        super().__init__()
        self.lut, self.d_model = nn.Embedding(vocab, d_model), d_model
        nn.init.normal_(self.lut.weight, std=d_model**-0.5)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return self.lut(x) * math.sqrt(self.d_model) + self.pe[: x.size(1)]


class EncoderDecoder(nn.Module):
    def __init__(self, d_model=32, h=4, N=2, dropout=0.1):
        super().__init__()
        self.src_embed, self.tgt_embed = Embeddings(d_model, VOCAB), Embeddings(d_model, VOCAB)
        self.encoder = nn.ModuleList([EncoderLayer(d_model, h, dropout) for _ in range(N)])
        self.decoder = nn.ModuleList([DecoderLayer(d_model, h, dropout) for _ in range(N)])
        self.enc_norm, self.dec_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.generator = nn.Linear(d_model, VOCAB)

    def encode(self, src, src_mask):
        x = self.src_embed(src)
        for layer in self.encoder:
            x = layer(x, src_mask)
        return self.enc_norm(x)

    def decode(self, memory, src_mask, tgt, tgt_mask):
        x = self.tgt_embed(tgt)
        for layer in self.decoder:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.dec_norm(x)

    def forward(self, src, tgt):
        src_mask = (src != PAD)[:, None, None, :]
        tgt_mask = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device).tril()
        return self.generator(self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask))


def reversal_batch(n=6, longest=9):
    src, tgt = torch.full((n, longest), PAD), torch.full((n, longest + 2), PAD)
    for row, m in enumerate([7, 4, longest, 5, 8, 6][:n]):
        words = torch.randint(3, VOCAB, (m,))
        src[row, :m], tgt[row, 0], tgt[row, 1 : m + 1], tgt[row, m + 1] = words, BOS, words.flip(0), EOS
    return (src, tgt[:, :-1]), tgt[:, 1:]


def subject():
    torch.manual_seed(0)
    model = EncoderDecoder()
    inputs, targets = reversal_batch()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    return {
        "model": model,
        "inputs": inputs,
        "kind": "encoder-decoder",
        "pad_id": PAD,
        "targets": targets,
        "loss": lambda logits, y: criterion(logits.flatten(0, 1), y.flatten()),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9),
    }
