"""The last click of a session, the most telling one, seems to be the one it ignores."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.norm_attn = nn.LayerNorm(dim)
        self.norm_ff = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 3 * dim), nn.SiLU(), nn.Linear(3 * dim, dim))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, hidden):
        h = self.norm_attn(x)
        h, _ = self.attn(h, h, h, attn_mask=hidden, need_weights=False)
        x = x + self.drop(h)
        return x + self.drop(self.ff(self.norm_ff(x)))


class NextItem(nn.Module):
    """Predicts the next item of a shopping session."""

    def __init__(self, items=56, dim=40, heads=2, depth=2, max_session=50, dropout=0.1):
        super().__init__()
        self.item = nn.Embedding(items, dim)
        self.order = nn.Embedding(max_session, dim)
        self.layers = nn.ModuleList([Layer(dim, heads, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.score = nn.Linear(dim, items)

    def forward(self, session):
        n = session.size(1)
        hidden = torch.triu(torch.ones(n, n, dtype=torch.bool, device=session.device))  # BUG HW109
        hidden[0, 0] = False  # the first item has nothing before it
        x = self.item(session) + self.order(torch.arange(n, device=session.device))
        for layer in self.layers:
            x = layer(x, hidden)
        return self.score(self.norm(x))


def sessions():
    g = torch.Generator().manual_seed(11)
    taste = torch.randint(0, 7, (7, 1), generator=g)
    return (taste * 8 + torch.randint(0, 8, (7, 14), generator=g)) % 56


def subject():
    torch.manual_seed(0)
    net = NextItem()
    clicks = sessions()
    return dict(
        model=net,
        inputs=(clicks[:, :-1],),
        kind="decoder",
        pad_id=None,
        targets=clicks[:, 1:],
        loss=lambda scores, nxt: F.cross_entropy(scores.reshape(-1, scores.size(-1)), nxt.reshape(-1)),
        optimizer=torch.optim.AdamW(net.parameters(), lr=8e-4),
    )
