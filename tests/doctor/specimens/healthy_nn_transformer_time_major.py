"""nn.Transformer in its default layout [length, batch, width], boolean masks, sinusoidal positions."""

import math

import torch
from torch import nn

PAD, BOS, EOS = 0, 1, 2


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=100):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(0)])


class Reverser(nn.Module):
    def __init__(self, vocab=32, d_model=32, nhead=4, num_layers=2):
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab, d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.positions = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 4 * d_model, dropout=0.1)
        encoder = nn.TransformerEncoder(layer, num_layers, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.transformer = nn.Transformer(
            d_model, nhead, num_decoder_layers=num_layers, dim_feedforward=4 * d_model, custom_encoder=encoder
        )
        self.output = nn.Linear(d_model, vocab)

    def forward(self, src, tgt):
        padding = src == PAD  # stays [batch, length]: only the sequences are time-major
        tgt_mask = torch.triu(
            torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool, device=tgt.device), diagonal=1
        )
        source = self.positions(self.embedding(src.t()) * math.sqrt(self.d_model))
        target = self.positions(self.embedding(tgt.t()) * math.sqrt(self.d_model))
        out = self.transformer(
            source,
            target,
            tgt_mask=tgt_mask,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return self.output(out).transpose(0, 1)


def make_pairs():
    src, tgt = torch.full((8, 9), PAD), torch.full((8, 11), PAD)
    for row, n in enumerate([9, 3, 6, 8, 4, 7, 5, 9]):
        words = torch.randint(3, 32, (n,))
        src[row, :n] = words
        tgt[row, 0], tgt[row, 1 : n + 1], tgt[row, n + 1] = BOS, words.flip(0), EOS
    return src, tgt


def subject():
    torch.manual_seed(0)
    model = Reverser()
    src, tgt = make_pairs()
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    return {
        "model": model,
        "inputs": (src, tgt[:, :-1]),
        "kind": "encoder-decoder",
        "pad_id": PAD,
        "targets": tgt[:, 1:],
        "loss": lambda logits, y: criterion(logits.reshape(-1, 32), y.reshape(-1)),
        "optimizer": torch.optim.Adam(model.parameters(), lr=5e-4),
    }
