"""Next-item sessions cut or padded on the left to one fixed length, which is also that of the positions."""

import torch
from torch import nn
from torch.nn import functional as F

PAD, LENGTH = 0, 12


class Block(nn.Module):
    def __init__(self, d_model, num_heads, p=0.1):
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, num_heads, dropout=p, batch_first=True)
        self.norm2 = nn.LayerNorm(d_model)
        self.inner = nn.Linear(d_model, d_model)
        self.outer = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(p)

    def forward(self, x, hidden):
        query = self.norm1(x)
        mixed, _ = self.attention(query, query, query, attn_mask=hidden, need_weights=False)
        x = x + mixed
        return x + self.dropout(self.outer(F.relu(self.inner(self.norm2(x)))))


class Sessions(nn.Module):
    def __init__(self, num_items=43, d_model=32, num_heads=2, num_layers=2):
        super().__init__()
        self.items = nn.Embedding(num_items + 1, d_model, padding_idx=PAD)
        self.places = nn.Embedding(LENGTH, d_model)
        self.blocks = nn.ModuleList([Block(d_model, num_heads) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(d_model)
        nn.init.normal_(self.items.weight, std=0.05)
        nn.init.normal_(self.places.weight, std=0.05)

    def forward(self, sessions):
        length = sessions.shape[1]
        x = self.items(sessions) + self.places(torch.arange(length, device=sessions.device))
        future = torch.ones(length, length, dtype=torch.bool, device=sessions.device).triu(1)
        padded = (sessions == PAD)[:, None, :] & ~torch.eye(length, dtype=torch.bool, device=sessions.device)
        hidden = (future | padded).repeat_interleave(2, dim=0)
        for block in self.blocks:
            x = block(x, hidden)
        return self.norm(x) @ self.items.weight.t()


def loss_function(logits, following):
    return F.cross_entropy(logits.flatten(0, 1), following.flatten(), ignore_index=PAD)


def subject():
    torch.manual_seed(0)
    model = Sessions()
    start = torch.randint(0, 43, (8, 1))
    text = (start + 5 * torch.arange(LENGTH + 1)) % 43 + 1  # every session goes on in steps of five
    for row, words in enumerate([13, 6, 9, 4, 13, 8, 11, 5]):
        text[row, : LENGTH + 1 - words] = PAD
    return dict(
        model=model,
        inputs=(text[:, :-1],),
        kind="decoder",
        pad_id=PAD,
        targets=text[:, 1:],
        loss=loss_function,
        optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
    )
