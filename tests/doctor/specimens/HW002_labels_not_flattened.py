"""The scores are flattened for the cross-entropy and the labels are not: the first step stops there."""

import torch
from torch import nn
from torch.nn import functional as F


class Writer(nn.Module):
    def __init__(self, vocab_size=37, d_model=32, num_heads=4, num_layers=2, max_length=64):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        layer = nn.TransformerEncoderLayer(
            d_model, num_heads, 4 * d_model, 0.1, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, vocab_size)

    def forward(self, ids):
        length = ids.shape[1]
        hidden = nn.Transformer.generate_square_subsequent_mask(length, device=ids.device)
        x = self.tokens(ids) + self.positions(torch.arange(length, device=ids.device))
        return self.output(self.norm(self.blocks(x, mask=hidden, is_causal=True)))


def loss_function(logits, labels):
    scores = logits.reshape(-1, logits.shape[-1])
    return F.cross_entropy(scores, labels)  # BUG HW002
    # RIGHT return F.cross_entropy(scores, labels.reshape(-1))


def subject():
    torch.manual_seed(0)
    model = Writer()
    half = torch.randint(0, 37, (5, 8))
    text = torch.cat([half, half.flip(1)], dim=1)  # palindromes
    return dict(
        model=model,
        inputs=(text[:, :-1],),
        kind="decoder",
        pad_id=None,
        targets=text[:, 1:],
        loss=loss_function,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
    )
