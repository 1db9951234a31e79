"""The mean of checkpoints, and checkpoints that cannot be averaged."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from headwise.checkpoint.weights import model_tensors, save_tensors
from headwise.errors import RunError
from headwise.train.average import average_into


@pytest.fixture
def checkpoints(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for path in paths:
        save_tensors(path, model_tensors(nn.Linear(5, 4)), {})
    return paths


def test_every_weight_is_the_mean(tmp_path: Path) -> None:
    models = [nn.Linear(5, 4) for _ in range(3)]
    paths = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for model, path in zip(models, paths, strict=True):
        save_tensors(path, model_tensors(model), {})
    mean = nn.Linear(5, 4)
    average_into(mean, paths)
    for name, parameter in mean.named_parameters():
        expected = torch.stack([model.get_parameter(name).detach().double() for model in models]).mean(0)
        assert parameter.dtype == torch.float32
        torch.testing.assert_close(parameter.detach(), expected.float(), rtol=0, atol=1e-8)
    average_into(mean, paths[:1])
    assert torch.equal(mean.weight, models[0].weight)


def test_a_missing_checkpoint_is_named(checkpoints: list[Path]) -> None:
    checkpoints[1].unlink()
    with pytest.raises(RunError, match=r"1\.safetensors is missing"):
        average_into(nn.Linear(5, 4), checkpoints)


def test_a_checkpoint_without_a_tensor_never_dilutes_the_mean(checkpoints: list[Path]) -> None:
    save_tensors(checkpoints[1], {"weight": torch.zeros(4, 5)}, {})
    model = nn.Linear(5, 4)
    before = model.weight.detach().clone()
    with pytest.raises(RunError, match=r"1\.safetensors does not fit the model: bias: missing"):
        average_into(model, checkpoints)
    assert torch.equal(model.weight, before)
