"""Short reviews all get the same class; the longer the review, the worse the model."""

import torch
from torch import nn

PAD_ID = 0


class ReviewClassifier(nn.Module):
    """Embeds, encodes, averages the words of a review, and scores the classes."""

    def __init__(self, vocab_size=50, d_model=32, nhead=4, num_layers=2, num_classes=4, max_len=80):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=PAD_ID)
        self.positions = nn.Embedding(max_len, d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(
            layer, num_layers, norm=nn.LayerNorm(d_model), enable_nested_tensor=False
        )
        self.classifier = nn.Linear(d_model, num_classes)

    def forward(self, tokens):
        padding = tokens == PAD_ID
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.size(1), device=tokens.device))
        x = self.encoder(x, src_key_padding_mask=tokens != PAD_ID)  # BUG HW105
        # RIGHT x = self.encoder(x, src_key_padding_mask=padding)
        words = (~padding).unsqueeze(-1).float()
        pooled = (x * words).sum(dim=1) / words.sum(dim=1).clamp(min=1)
        return self.classifier(pooled)


def make_batch():
    tokens = torch.randint(1, 50, (8, 18))
    lengths = torch.tensor([16, 5, 12, 9, 17, 3, 14, 8])
    tokens[torch.arange(18) >= lengths[:, None]] = PAD_ID
    return tokens, torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])


def subject():
    torch.manual_seed(0)
    model = ReviewClassifier()
    tokens, labels = make_batch()
    return {
        "model": model,
        "inputs": (tokens,),
        "kind": "encoder",
        "pad_id": PAD_ID,
        "targets": labels,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=5e-4),
    }
