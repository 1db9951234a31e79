"""nn.Transformer, batch first. The caller makes the masks and passes them in, so `call` shows how."""

import torch
import torch.nn as nn

PAD_IDX = 0


class Summariser(nn.Module):
    def __init__(self, vocab=45, width=40, heads=4, layers=2, longest=50):
        super().__init__()
        self.words, self.places = (
            nn.Embedding(vocab, width, padding_idx=PAD_IDX),
            nn.Embedding(longest, width),
        )
        self.transformer = nn.Transformer(
            width, heads, layers, layers, 2 * width, dropout=0.0, batch_first=True
        )
        self.transformer.encoder.use_nested_tensor = False  # a prototype that warns
        self.project = nn.Linear(width, vocab)

    def embed(self, ids):
        return self.words(ids) + self.places.weight[: ids.size(1)]

    def forward(self, text, summary, summary_mask, text_padding, summary_padding):
        hidden = self.transformer(
            self.embed(text),
            self.embed(summary),
            None,
            summary_mask,
            None,
            text_padding,
            summary_padding,
            text_padding,
        )
        return self.project(hidden)


def call(model, text, summary):
    n = summary.size(1)
    mask = torch.ones(n, n, dtype=torch.bool, device=text.device).triu(1)
    return model(text, summary, mask, text == PAD_IDX, summary == PAD_IDX)


def articles():
    text, summary = torch.randint(2, 45, (6, 16)), torch.zeros(6, 7, dtype=torch.long)
    for row, n in enumerate([16, 7, 12, 9, 14, 10]):
        text[row, n:] = PAD_IDX
        summary[row, 0] = 1
        taken = text[row, 0:n:4]
        summary[row, 1 : len(taken) + 1] = taken
    return text, summary


def subject():
    torch.manual_seed(0)
    model = Summariser()
    text, summary = articles()
    loss = nn.CrossEntropyLoss(ignore_index=PAD_IDX)
    return {
        "model": model,
        "inputs": (text, summary[:, :-1]),
        "call": call,
        "kind": "encoder-decoder",
        "pad_id": PAD_IDX,
        "targets": summary[:, 1:],
        "loss": lambda scores, labels: loss(scores.flatten(0, 1), labels.flatten()),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
    }
