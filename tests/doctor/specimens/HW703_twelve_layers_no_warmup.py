"""Two layers learn this in a minute. With twelve it predicts the average note for ever."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DeepMusicModel(nn.Module):
    def __init__(self, notes=40, d_model=64, nhead=4, depth=12, max_len=32):
        super().__init__()
        self.notes = nn.Embedding(notes, d_model)
        self.times = nn.Embedding(max_len, d_model)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(d_model, nhead, 4 * d_model, 0.0, batch_first=True)
            for _ in range(depth)
        )
        self.out = nn.Linear(d_model, notes)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, ids):
        steps = ids.size(1)
        causal = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        x = self.notes(ids) + self.times(torch.arange(steps))
        for layer in self.layers:
            x = layer(x, src_mask=causal)
        return self.out(x)


def loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def subject():
    torch.manual_seed(0)
    model = DeepMusicModel()
    ids = (torch.randint(0, 40, (6, 1)) + torch.arange(1, 7)[:, None] * torch.arange(17)) % 40
    return {
        "model": model,
        "inputs": (ids[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": ids[:, 1:],
        "loss": loss,
        "optimizer": torch.optim.Adam(model.parameters(), lr=2e-3),  # BUG HW703
    }
