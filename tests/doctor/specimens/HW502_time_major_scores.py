"""The model is [time, batch, channels] throughout, as the library likes it, and learns note counts only."""

import torch
from torch import nn
from torch.nn import functional as F


class TimeMajorBlock(nn.Module):
    """Works on [time, batch, channels], as nn.MultiheadAttention does by default."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm_a = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, heads)
        self.norm_b = nn.LayerNorm(width)
        self.widen, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x, future):
        y = self.norm_a(x)
        x = x + self.attend(y, y, y, attn_mask=future, need_weights=False)[0]
        return x + self.narrow(F.gelu(self.widen(self.norm_b(x))))


class MelodyModel(nn.Module):
    def __init__(self, notes=36, width=36, heads=3, depth=2, longest=40):
        super().__init__()
        self.note = nn.Embedding(notes, width)
        self.when = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(TimeMajorBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.predict = nn.Linear(width, notes)

    def forward(self, ids):
        steps = ids.shape[1]
        x = self.note(ids.t()) + self.when(torch.arange(steps)).unsqueeze(1)
        future = torch.ones(steps, steps, dtype=torch.bool).triu(1)
        for block in self.blocks:
            x = block(x, future)
        return self.predict(self.norm(x))


def melody_loss(scores, notes):
    return F.cross_entropy(scores.reshape(-1, scores.size(-1)), notes.reshape(-1))  # BUG HW502
    # RIGHT scores = scores.transpose(0, 1)
    # RIGHT return F.cross_entropy(scores.reshape(-1, scores.size(-1)), notes.reshape(-1))


def subject():
    torch.manual_seed(3)
    model = MelodyModel()
    motif = torch.randint(0, 36, (4, 6))
    tune = torch.cat([motif, (motif + 5) % 36, motif], dim=1)
    return {
        "model": model,
        "inputs": (tune[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": tune[:, 1:],
        "loss": melody_loss,
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
    }
