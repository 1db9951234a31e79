"""The paper multiplies the embedding by its width, or so I thought. Word order hardly matters."""

import math

import torch
import torch.nn as nn

PAD, VOCAB, CLASSES = 0, 60, 4


def sinusoid_table(length, width):
    table = torch.zeros(length, width)
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    table[:, 0::2] = torch.sin(torch.arange(length)[:, None] * rate)
    table[:, 1::2] = torch.cos(torch.arange(length)[:, None] * rate)
    return table


class HeadlineClassifier(nn.Module):
    def __init__(self, d_model=64, nhead=4, num_layers=2, max_len=40):
        super().__init__()
        self.d_model = d_model
        self.embed = nn.Embedding(VOCAB, d_model, padding_idx=PAD)
        self.register_buffer("pos", sinusoid_table(max_len, d_model))
        layer = nn.TransformerEncoderLayer(
            d_model, nhead, dim_feedforward=3 * d_model, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.classify = nn.Linear(d_model, CLASSES)

    def forward(self, ids):
        pad = ids == PAD
        x = self.embed(ids) * self.d_model + self.pos[: ids.size(1)]  # BUG HW304
        # RIGHT x = self.embed(ids) + self.pos[: ids.size(1)]
        x = self.encoder(x, src_key_padding_mask=pad)
        weight = (~pad).unsqueeze(-1).to(x.dtype)
        pooled = (x * weight).sum(dim=1) / weight.sum(dim=1)
        return self.classify(pooled)


def headlines():
    ids = torch.randint(1, VOCAB, (8, 14))
    for row, length in enumerate([14, 9, 12, 5, 14, 7, 10, 6]):
        ids[row, length:] = PAD
    return ids, torch.tensor([0, 1, 2, 3, 1, 0, 3, 2])


def subject():
    torch.manual_seed(0)
    model = HeadlineClassifier()
    ids, labels = headlines()
    return {
        "model": model,
        "inputs": (ids,),
        "kind": "encoder",
        "pad_id": PAD,
        "targets": labels,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
