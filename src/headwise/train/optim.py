"""Adam and AdamW, and their state as plain named tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from headwise.checkpoint.weights import check_fit
from headwise.config import TrainConfig
from headwise.model.embed import TokenEmbedding
from headwise.model.positions import LearnedPositions

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what torch's Adam keeps for each parameter


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """The configured optimizer over every parameter of the model.

    Adam: A Method for Stochastic Optimization, algorithm 1; Decoupled Weight Decay Regularization,
    algorithm 2. One fused pass over all parameters. Decay pulls on matrices only: biases and norms
    have no scale to shrink, and an embedding's row would fade between its rare appearances.
    """
    spared = {
        id(parameter)
        for module in model.modules()
        if isinstance(module, TokenEmbedding | LearnedPositions)
        for parameter in module.parameters()
    }
    matrices = [p for p in model.parameters() if p.ndim >= 2 and id(p) not in spared]
    others = [p for p in model.parameters() if p.ndim < 2 or id(p) in spared]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
    return kind(
        [group for group in groups if group["params"]],
        lr=0.0,  # the schedule sets it before each step
        betas=(config.beta1, config.beta2),
        eps=config.adam_eps,
        weight_decay=config.weight_decay,
        fused=True,
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this rate from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    """The moments of every parameter, named after it: `decoder.blocks.0....exp_avg`."""
    for name, parameter in model.named_parameters():
        for moment in _MOMENTS:
            if moment in optimizer.state[parameter]:
                yield f"{name}.{moment}", optimizer.state[parameter][moment]


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], path: Path
) -> None:
    """Put the moments back; before the first step there are none.

    Errors: RunError listing every missing, unexpected and misshapen moment.
    """
    if not tensors:
        return
    parameters = dict(model.named_parameters())
    wanted = {
        f"{name}.{moment}": parameter.new_zeros(()) if moment == "step" else parameter
        for name, parameter in parameters.items()
        for moment in _MOMENTS
    }
    check_fit(tensors, wanted, path)
    for name, parameter in parameters.items():
        optimizer.state[parameter] = {moment: tensors[f"{name}.{moment}"] for moment in _MOMENTS}
