"""When I plot the position table all but the first columns look like noise; is that how it should be?"""

import math

import torch
from torch import Tensor, nn

NTOKENS, PAD = 53, 0


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 500):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (math.log(10000.0) / d_model))  # BUG HW305
        # RIGHT div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe = torch.zeros(1, max_len, d_model)
        pe[0, :, 0::2] = torch.sin(position * div_term)
        pe[0, :, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.pe[:, : x.size(1)])


class TransformerModel(nn.Module):
    def __init__(
        self, ntoken: int, d_model: int = 60, nhead: int = 5, nlayers: int = 2, dropout: float = 0.0
    ):
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(ntoken, d_model)
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        one_layer = nn.TransformerEncoderLayer(d_model, nhead, 2 * d_model, dropout, batch_first=True)
        self.transformer_encoder = nn.TransformerEncoder(one_layer, nlayers, enable_nested_tensor=False)
        self.linear = nn.Linear(d_model, ntoken)
        self.init_weights()

    def init_weights(self) -> None:
        self.embedding.weight.data.uniform_(-0.2, 0.2)
        self.linear.bias.data.zero_()
        self.linear.weight.data.uniform_(-0.1, 0.1)

    def forward(self, src: Tensor, src_mask: Tensor, padding: Tensor) -> Tensor:
        src = self.embedding(src) * math.sqrt(self.d_model)
        src = self.pos_encoder(src)
        output = self.transformer_encoder(src, mask=src_mask, src_key_padding_mask=padding)
        return self.linear(output)


def call(model: nn.Module, ids: Tensor) -> Tensor:
    size = ids.size(1)
    src_mask = torch.triu(torch.ones(size, size, dtype=torch.bool), diagonal=1)
    return model(ids, src_mask, ids == PAD)


def loss_fn(output: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten(), ignore_index=PAD)


def ladders() -> Tensor:
    data = (
        1 + (torch.randint(0, 52, (5, 1)) + torch.tensor([[1], [3], [5], [9], [11]]) * torch.arange(15)) % 52
    )
    for row, length in enumerate((15, 12, 8, 15, 10)):
        data[row, length:] = PAD
    return data


def subject():
    torch.manual_seed(0)
    model = TransformerModel(NTOKENS)
    data = ladders()
    return {
        "model": model,
        "inputs": (data[:, :-1],),
        "call": call,
        "kind": "decoder",
        "pad_id": PAD,
        "targets": data[:, 1:],
        "loss": loss_fn,
        "optimizer": torch.optim.Adam(model.parameters(), lr=5e-4),
    }
