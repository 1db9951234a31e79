"""The mean of several checkpoints' weights: smoother than any one of them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from headwise.checkpoint.weights import check_fit, fill_model, load_tensors, model_tensors


def average_into(model: nn.Module, paths: list[Path]) -> None:
    """Fill the model with the mean of the checkpoints' weights.

    Attention Is All You Need, section 6.1. Summed in float64: the order then hardly matters.
    Errors: RunError naming a checkpoint that is missing, damaged, or does not fit the model.
    """
    wanted = model_tensors(model)
    total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in wanted.items()}
    for path in paths:
        tensors, _ = load_tensors(path)
        check_fit(tensors, wanted, path)
        for name, tensor in tensors.items():
            total[name] += tensor
    fill_model(model, {name: tensor / len(paths) for name, tensor in total.items()}, paths[-1])
