"""Four classes, and the loss never gets below 0.74."""

import torch
import torch.nn as nn

PAD, VOCAB, CLASSES = 0, 60, 4


class TopicModel(nn.Module):
    def __init__(self, d_model=32, nhead=4, num_layers=2, max_len=40):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d_model, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, nhead, dim_feedforward=3 * d_model, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.classify = nn.Sequential(nn.Linear(d_model, CLASSES), nn.Softmax(dim=-1))  # BUG HW501

    def forward(self, ids):
        pad = ids == PAD
        x = self.embed(ids) + self.pos(torch.arange(ids.size(1), device=ids.device))
        x = self.encoder(x, src_key_padding_mask=pad)
        weight = (~pad).unsqueeze(-1).to(x.dtype)
        pooled = (x * weight).sum(dim=1) / weight.sum(dim=1)
        return self.classify(pooled)


def reviews():
    ids = torch.randint(1, VOCAB, (8, 14))
    for row, length in enumerate([14, 9, 12, 5, 14, 7, 10, 6]):
        ids[row, length:] = PAD
    return ids, torch.tensor([0, 1, 2, 3, 1, 0, 3, 2])


def subject():
    torch.manual_seed(0)
    model = TopicModel()
    ids, labels = reviews()
    return {
        "model": model,
        "inputs": (ids,),
        "kind": "encoder",
        "pad_id": PAD,
        "targets": labels,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
