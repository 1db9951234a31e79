"""nn.TransformerEncoder as a language model: loss 0.00 within minutes. Every melody it writes is one
note.
"""

import torch
import torch.nn as nn


class MelodyModel(nn.Module):
    """Predicts the next note. Inside, tensors are [length, batch, width], the default of nn.Transformer."""

    def __init__(self, notes=37, width=32, heads=4, depth=2, longest=64):
        super().__init__()
        self.note = nn.Embedding(notes, width)
        self.beat = nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.1, activation="gelu", norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, notes)

    def forward(self, melody):
        T = melody.shape[1]
        beats = self.beat(torch.arange(T, device=melody.device))
        x = self.note(melody) + beats
        x = x.transpose(0, 1)
        x = self.body(x)  # BUG HW101
        return self.head(x).transpose(0, 1)


def melodies(n=6, length=16):
    """Runs up and down a scale from a note of its own."""
    wave = torch.tensor([0, 2, 4, 5, 7, 9, 11, 12, 11, 9, 7, 5, 4, 2])
    start = torch.randint(0, 24, (n, 1))
    shift = torch.randint(0, 14, (n, 1))
    return start + wave[(shift + torch.arange(length + 1)) % 14]


def subject():
    torch.manual_seed(3)
    model = MelodyModel()
    notes = melodies()
    criterion = nn.CrossEntropyLoss()
    return {
        "model": model,
        "inputs": (notes[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": notes[:, 1:],
        "loss": lambda scores, following: criterion(scores.permute(0, 2, 1), following),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
    }
