"""Shuffling the rows of a batch changes the predictions; with one row at a time nothing is learnt."""

import torch
from torch import nn


class ReviewClassifier(nn.Module):
    """Embeds, encodes, averages the words of a review, and scores the classes."""

    def __init__(self, vocab_size=50, d_model=32, nhead=4, num_layers=2, num_classes=4, max_len=64):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_len, d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 64, dropout=0.1, norm_first=True)  # BUG HW209
        # RIGHT layer = nn.TransformerEncoderLayer(
        # RIGHT     d_model, nhead, 64, dropout=0.1, batch_first=True, norm_first=True
        # RIGHT )
        self.encoder = nn.TransformerEncoder(
            layer, num_layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False
        )
        self.classifier = nn.Linear(d_model, num_classes)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.size(1), device=tokens.device))
        x = self.encoder(x)
        return self.classifier(x.mean(dim=1))


def make_batch():
    tokens = torch.randint(1, 50, (8, 18))
    return tokens, torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])


def subject():
    torch.manual_seed(0)
    model = ReviewClassifier()
    tokens, labels = make_batch()
    return {
        "model": model,
        "inputs": (tokens,),
        "kind": "encoder",
        "pad_id": None,
        "targets": labels,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=5e-4),
    }
