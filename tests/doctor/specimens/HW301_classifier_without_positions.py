"""'The food was good, not bad' and 'bad, not good' get the same score to the last digit."""

import torch
import torch.nn as nn

PAD, VOCAB, CLASSES = 0, 60, 4


class ReviewClassifier(nn.Module):
    def __init__(self, d_model=32, nhead=4, num_layers=2):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d_model, padding_idx=PAD)
        layer = nn.TransformerEncoderLayer(
            d_model, nhead, dim_feedforward=3 * d_model, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.classify = nn.Linear(d_model, CLASSES)

    def forward(self, ids):
        pad = ids == PAD
        x = self.embed(ids)  # BUG HW301
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
    model = ReviewClassifier()
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
