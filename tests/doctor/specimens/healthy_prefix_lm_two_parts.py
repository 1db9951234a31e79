"""Prefix language model with two inputs: the question is read both ways, the answer from left to right.

One stack does the work of encoder and decoder; scores are given for the answer only.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, VOCAB = 0, 1, 39


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def attend(self, x, hidden):
        B, T, C = x.shape
        q, k, v = (
            f(x).view(B, T, self.heads, C // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(C // self.heads)
        weights = scores.masked_fill(hidden, -1e9).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(B, T, C))

    def forward(self, x, hidden):
        x = x + self.attend(self.norm1(x), hidden)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class QuestionAnswer(nn.Module):
    def __init__(self, dim=48, heads=4, depth=2, longest=40):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.question_place, self.answer_place = nn.Embedding(longest, dim), nn.Embedding(longest, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB)

    def forward(self, question, answer):
        S, T = question.size(1), answer.size(1)
        a = self.embed(question) + self.question_place(torch.arange(S, device=question.device))
        b = self.embed(answer) + self.answer_place(torch.arange(T, device=answer.device))
        hidden = torch.zeros(S + T, S + T, dtype=torch.bool, device=question.device)
        hidden[:S, S:] = True
        hidden[S:, S:] = torch.ones(T, T, dtype=torch.bool, device=question.device).triu(1)
        padding = F.pad(question == PAD, (0, T))  # answers are padded on the right: nothing to hide there
        hidden = hidden | padding[:, None, None, :]
        x = torch.cat([a, b], dim=1)
        for block in self.blocks:
            x = block(x, hidden)
        return self.head(self.norm(x[:, S:]))


def subject():
    torch.manual_seed(0)
    model = QuestionAnswer()
    question = torch.randint(2, VOCAB, (6, 10))
    for row, n in enumerate([10, 4, 7, 9, 5, 8]):
        question[row, n:] = PAD
    answer = torch.cat([torch.full((6, 1), BOS), question[:, :4].flip(1), torch.full((6, 1), BOS)], dim=1)
    return {
        "model": model,
        "inputs": (question, answer[:, :-1]),
        "pad_id": PAD,
        "targets": answer[:, 1:],
        "loss": lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=PAD),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=1e-3),
    }
