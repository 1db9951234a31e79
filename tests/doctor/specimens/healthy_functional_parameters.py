"""Plain functions over a dictionary of parameters, k.mT and integer comparisons for the mask."""

import torch
from torch import nn
from torch.nn import functional as F


def layer_norm(x, p, name):
    return F.layer_norm(x, x.shape[-1:], p[f"{name}_g"], p[f"{name}_b"])


def attend(x, p, i, heads):
    B, T, C = x.shape
    q, k, v = (x @ p[f"{i}_{name}"] for name in ("wq", "wk", "wv"))
    q, k, v = (t.reshape(B, T, heads, C // heads).permute(0, 2, 1, 3) for t in (q, k, v))
    row, col = torch.arange(T).view(T, 1), torch.arange(T).view(1, T)
    visible = col <= row
    scores = q @ k.mT / (C // heads) ** 0.5
    probs = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    return (probs @ v).permute(0, 2, 1, 3).reshape(B, T, C) @ p[f"{i}_wo"]


def mlp(x, p, i):
    return F.gelu(x @ p[f"{i}_w1"] + p[f"{i}_b1"]) @ p[f"{i}_w2"] + p[f"{i}_b2"]


def language_model(ids, p, depth, heads):
    x = p["tok"][ids] + p["pos"][: ids.shape[1]]
    for i in range(depth):
        x = x + attend(layer_norm(x, p, f"{i}_n1"), p, i, heads)
        x = x + mlp(layer_norm(x, p, f"{i}_n2"), p, i)
    return layer_norm(x, p, "nf") @ p["unembed"]


class FunctionalLM(nn.Module):
    """All parameters in one flat dictionary, the model itself in plain functions."""

    def __init__(self, vocab=29, width=40, heads=5, depth=2, longest=48):
        super().__init__()
        self.heads, self.depth = heads, depth
        p = {"tok": torch.randn(vocab, width), "pos": torch.randn(longest, width)}
        for i in range(depth):
            for name in ("wq", "wk", "wv", "wo"):
                p[f"{i}_{name}"] = torch.randn(width, width) * width**-0.5
            p[f"{i}_w1"] = torch.randn(width, 4 * width) * width**-0.5
            p[f"{i}_w2"] = torch.randn(4 * width, width) * (4 * width) ** -0.5
            p[f"{i}_b1"], p[f"{i}_b2"] = torch.zeros(4 * width), torch.zeros(width)
        for name in [f"{i}_n{j}" for i in range(depth) for j in (1, 2)] + ["nf"]:
            p[f"{name}_g"], p[f"{name}_b"] = torch.ones(width), torch.zeros(width)
        p["unembed"] = torch.randn(width, vocab) * 0.5 * width**-0.5
        self.p = nn.ParameterDict({name: nn.Parameter(value) for name, value in p.items()})

    def forward(self, ids):
        return language_model(ids, self.p, self.depth, self.heads)


def subject():
    torch.manual_seed(0)
    model = FunctionalLM()
    ids = torch.cumsum(torch.randint(1, 4, (5, 16)), dim=1) % 29
    return {
        "model": model,
        "inputs": (ids[:, :-1],),
        "kind": "decoder",
        "pad_id": None,
        "targets": ids[:, 1:],
        "loss": lambda out, y: F.cross_entropy(out.movedim(-1, 1), y),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
    }
