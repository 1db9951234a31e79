"""A classifier that has learnt its smoothed labels: the loss stands at 0.5 of ten classes, its least."""

import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, vocab=40, d_model=32, classes=10):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, d_model), nn.Embedding(12, d_model)
        layer = nn.TransformerEncoderLayer(d_model, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.head = nn.Linear(d_model, classes)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1)))
        return self.head(self.encoder(x).mean(1))


def loss(scores, labels):
    return F.cross_entropy(scores, labels, label_smoothing=0.1)


def subject():
    torch.manual_seed(0)
    model, ids, labels = Classifier(), torch.randint(40, (6, 12)), torch.tensor([0, 3, 9, 4, 4, 7])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(80):
        optimizer.zero_grad()
        loss(model(ids), labels).backward()
        optimizer.step()
    return {"model": model, "inputs": ids, "targets": labels, "loss": loss, "kind": "encoder"}
