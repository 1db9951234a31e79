"""Rows of the attention map do not sum to one, columns do."""

import torch
import torch.nn as nn
from torch.nn import functional as F

n_embd, n_head, n_layer, block_size, dropout = 40, 4, 2, 32, 0.1
chars = "abcdefghijklmnopqrstuvwxyz .,!?"
vocab_size = len(chars)
stoi = {ch: i for i, ch in enumerate(chars)}
text = "what a piece of work is a man! how noble in reason, how infinite in faculty, in form how express"


class Head(nn.Module):
    """One head of self-attention."""

    def __init__(self, head_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        T = x.shape[1]
        k = self.key(x)
        q = self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = F.softmax(wei, dim=1)  # BUG HW203
        # RIGHT wei = F.softmax(wei, dim=-1)
        wei = self.dropout(wei)
        return wei @ self.value(x)


class MultiHeadAttention(nn.Module):
    """Several heads of self-attention in parallel."""

    def __init__(self, num_heads, head_size):
        super().__init__()
        self.heads = nn.ModuleList([Head(head_size) for _ in range(num_heads)])
        self.proj = nn.Linear(head_size * num_heads, n_embd)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        out = torch.cat([h(x) for h in self.heads], dim=-1)
        return self.dropout(self.proj(out))


class Block(nn.Module):
    """Communication followed by computation."""

    def __init__(self):
        super().__init__()
        self.sa = MultiHeadAttention(n_head, n_embd // n_head)
        self.ffwd = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout)
        )
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        x = x + self.ffwd(self.ln2(x))
        return x


class CharLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
        self.position_embedding_table = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx):
        tok_emb = self.token_embedding_table(idx)
        pos_emb = self.position_embedding_table(torch.arange(idx.shape[1], device=idx.device))
        x = self.blocks(tok_emb + pos_emb)
        return self.lm_head(self.ln_f(x))


def loss_fn(logits, targets):
    B, T, C = logits.shape
    return F.cross_entropy(logits.view(B * T, C), targets.reshape(B * T))


def subject():
    torch.manual_seed(1337)
    model = CharLanguageModel()
    data = torch.tensor([stoi[c] for c in text])
    ix = torch.randint(len(data) - 17, (6,)).tolist()
    xb = torch.stack([data[i : i + 16] for i in ix])
    yb = torch.stack([data[i + 1 : i + 17] for i in ix])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return dict(
        model=model, inputs=(xb,), kind="decoder", pad_id=None, targets=yb, loss=loss_fn, optimizer=optimizer
    )
