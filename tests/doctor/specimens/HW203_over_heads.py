"""Adding heads changes the size of the attention output; with one head every weight is exactly one."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, MASK, VOCAB = 0, 1, 44


class BertSelfAttention(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.head_size = num_heads, hidden_size // num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def transpose_for_scores(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(x.size(0), x.size(1), self.num_heads, self.head_size)
        return x.permute(0, 2, 1, 3)

    def forward(
        self, hidden_states: torch.Tensor, attention_bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        q = self.transpose_for_scores(self.query(hidden_states))
        k = self.transpose_for_scores(self.key(hidden_states))
        v = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_size)
        if attention_bias is not None:
            scores = scores + attention_bias
        probs = F.softmax(scores, dim=1)  # BUG HW203
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        context = context.view(hidden_states.shape)
        return self.dense(context)


class BertLayer(nn.Module):
    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = BertSelfAttention(hidden_size, num_heads)
        self.attention_norm = nn.LayerNorm(hidden_size)
        self.intermediate = nn.Linear(hidden_size, 4 * hidden_size)
        self.output = nn.Linear(4 * hidden_size, hidden_size)
        self.output_norm = nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, attention_bias: torch.Tensor | None = None) -> torch.Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, attention_bias)))
        y = self.output(F.gelu(self.intermediate(x)))
        return self.output_norm(x + self.dropout(y))


class MaskedWordModel(nn.Module):
    def __init__(self, hidden_size=48, num_heads=4, num_layers=2, max_position=40, dropout=0.1) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCAB, hidden_size, padding_idx=PAD)
        self.position_embeddings = nn.Embedding(max_position, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList([BertLayer(hidden_size, num_heads, dropout) for _ in range(num_layers)])
        self.decoder = nn.Linear(hidden_size, VOCAB)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        bias = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        positions = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.position_embeddings(positions)
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, bias)
        return self.decoder(x)


def mlm_batch():
    ids = torch.randint(2, VOCAB, (6, 14))
    for row, length in enumerate([14, 9, 6, 12, 4, 10]):
        ids[row, length:] = PAD
    chosen = (torch.rand(ids.shape) < 0.25) & (ids != PAD)
    chosen[:, 1] = True
    return ids.masked_fill(chosen, MASK), ids.masked_fill(~chosen, -100)


def subject():
    torch.manual_seed(0)
    model = MaskedWordModel()
    input_ids, labels = mlm_batch()
    return {
        "model": model,
        "inputs": {"input_ids": input_ids, "attention_mask": (input_ids != PAD).long()},
        "kind": "encoder",
        "pad_id": PAD,
        "targets": labels,
        "loss": lambda logits, y: F.cross_entropy(logits.view(-1, VOCAB), y.view(-1), ignore_index=-100),
        "optimizer": torch.optim.AdamW(model.parameters(), lr=5e-4),
    }
