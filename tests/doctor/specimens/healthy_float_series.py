"""Sensor readings in, a number out: float inputs, a regression loss, and an encoder of the whole series."""

import torch
import torch.nn as nn


class SeriesRegressor(nn.Module):
    def __init__(self, channels=6, d_model=32, nhead=4, depth=2, longest=64):
        super().__init__()
        self.project = nn.Linear(channels, d_model)
        self.place = nn.Parameter(torch.randn(1, longest, d_model) * 0.5)
        layer = nn.TransformerEncoderLayer(
            d_model,
            nhead,
            dim_feedforward=64,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(d_model), enable_nested_tensor=False)
        self.head = nn.Linear(d_model, 1)

    def forward(self, readings):
        x = self.project(readings) + self.place[:, : readings.size(1)]
        return self.head(self.encoder(x).mean(dim=1)).squeeze(-1)


def recordings(count=8, length=20):
    """Waves of different speeds with some noise; the target is the speed."""
    speed = torch.linspace(0.2, 1.5, count)
    time = torch.arange(length)[None, :, None] * speed[:, None, None]
    phase = torch.rand(1, 1, 6) * 6.28
    return torch.sin(time + phase) + 0.1 * torch.randn(count, length, 6), speed


def subject():
    torch.manual_seed(0)
    model = SeriesRegressor()
    readings, speed = recordings()
    return {
        "model": model,
        "inputs": (readings,),
        "kind": "encoder",
        "pad_id": None,
        "targets": speed,
        "loss": nn.MSELoss(),
        "optimizer": torch.optim.Adam(model.parameters(), lr=1e-3),
    }
