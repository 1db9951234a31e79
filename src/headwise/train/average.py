"""The mean of several checkpoints' weights: smoother than any one of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from headwise.checkpoint.weights import fill_model, load_tensors


def average_into(model: nn.Module, paths: list[Path]) -> None:
    """Fill the model with the mean of the checkpoints' weights.

    Attention Is All You Need, section 6.1. Summed in float64: the order then hardly matters.
    """
    total: dict[str, torch.Tensor] = {}
    for path in paths:
        tensors, _ = load_tensors(path)
        for name, tensor in tensors.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    fill_model(model, {name: (tensor / len(paths)).float() for name, tensor in total.items()}, paths[-1])
