"""Adam is the paper's algorithm, decay spares what has no scale, and the state survives a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.config import TrainConfig
from headwise.errors import RunError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.train.optim import make_optimizer, optimizer_tensors, restore_optimizer, set_learning_rate
from tiny_run import tiny, with_model

PATH = Path("training.safetensors")


def small(**model: Any) -> EncoderDecoder:
    config = with_model(tiny(Path("run")), **model).model
    return EncoderDecoder(config.with_vocabulary(20, 0))


def by_hand(
    parameter: Tensor, gradients: list[Tensor], rate: float, config: TrainConfig, decay: float
) -> Tensor:
    """Adam, algorithm 1; with decay, Decoupled Weight Decay Regularization, algorithm 2."""
    m, v = torch.zeros_like(parameter), torch.zeros_like(parameter)
    for t, gradient in enumerate(gradients, start=1):
        m = config.beta1 * m + (1 - config.beta1) * gradient
        v = config.beta2 * v + (1 - config.beta2) * gradient**2
        m_hat, v_hat = m / (1 - config.beta1**t), v / (1 - config.beta2**t)
        parameter = parameter - rate * m_hat / (v_hat.sqrt() + config.adam_eps) - rate * decay * parameter
    return parameter


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_a_step_is_the_one_written_by_hand(decay: float) -> None:
    config = TrainConfig(
        optimizer="adamw" if decay else "adam", weight_decay=decay, beta1=0.8, beta2=0.95, adam_eps=1e-6
    )
    model = nn.Linear(4, 3).double()
    optimizer = make_optimizer(model, config)
    gradients = {name: [torch.randn_like(p) for _ in range(5)] for name, p in model.named_parameters()}
    expected = {
        name: by_hand(p.detach(), gradients[name], 0.01, config, decay if name == "weight" else 0.0)
        for name, p in model.named_parameters()
    }
    for step in range(5):
        for name, p in model.named_parameters():
            p.grad = gradients[name][step].clone()
        set_learning_rate(optimizer, 0.01)
        optimizer.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), expected[name], rtol=1e-12, atol=1e-12)
    # the wrong twin: decay on the bias too would be seen
    twin = by_hand(model.bias.detach(), gradients["bias"], 0.01, config, 0.3)
    assert (twin - expected["bias"]).abs().max() > 1e-4


@pytest.mark.parametrize("tied", [True, False])
def test_decay_pulls_on_matrices_but_not_on_embeddings(tied: bool) -> None:
    model = small(positions="learned", tie_embeddings=tied, attention_bias=True)
    optimizer = make_optimizer(model, TrainConfig(optimizer="adamw", weight_decay=0.1))
    groups = [(group["weight_decay"], {id(p) for p in group["params"]}) for group in optimizer.param_groups]
    assert [decay for decay, _ in groups] == [0.1, 0.0]
    decayed = {name for name, p in model.named_parameters() if id(p) in groups[0][1]}
    spared = {name for name, p in model.named_parameters() if id(p) in groups[1][1]}
    assert decayed | spared == set(dict(model.named_parameters()))
    assert not decayed & spared
    assert ("output.weight" in decayed) is (not tied)
    for name in spared:
        parameter = model.get_parameter(name)
        assert parameter.ndim < 2 or "embedding" in name or "positions" in name, name
    assert not any("embedding" in name or "positions" in name or "bias" in name for name in decayed)
    assert any("encoder" in name for name in decayed)


def stepped(model: nn.Module, steps: int) -> torch.optim.Adam:
    optimizer = make_optimizer(model, TrainConfig())
    set_learning_rate(optimizer, 0.01)
    for step in range(steps):
        for p in model.parameters():
            p.grad = torch.full_like(p, 0.1 * (step + 1))
        optimizer.step()
    return optimizer


def test_restored_moments_go_on_bit_by_bit() -> None:
    model, twin = small(), small()
    optimizer = stepped(model, 3)
    saved = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer)}
    twin.load_state_dict(model.state_dict())
    restored = make_optimizer(twin, TrainConfig())
    restore_optimizer(twin, restored, saved, PATH)
    for one, other in ((model, optimizer), (twin, restored)):
        set_learning_rate(other, 0.02)
        for p in one.parameters():
            p.grad = torch.full_like(p, 0.7)
        other.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)


def test_before_the_first_step_there_are_no_moments() -> None:
    model = small()
    optimizer = make_optimizer(model, TrainConfig())
    assert dict(optimizer_tensors(model, optimizer)) == {}
    restore_optimizer(model, optimizer, {}, PATH)
    assert dict(optimizer_tensors(model, optimizer)) == {}


def test_wrong_moments_are_all_named() -> None:
    model = nn.Linear(4, 3)
    moments = dict(optimizer_tensors(model, stepped(model, 1)))
    moments["weights.exp_avg"] = moments.pop("weight.exp_avg")
    moments["bias.exp_avg_sq"] = torch.zeros(4)
    del moments["bias.step"]
    with pytest.raises(RunError) as raised:
        restore_optimizer(model, make_optimizer(model, TrainConfig()), moments, PATH)
    message = str(raised.value)
    assert message.startswith("training.safetensors does not fit the model: ")
    for part in (
        "weight.exp_avg: missing",
        "bias.step: missing",
        "weights.exp_avg: unexpected",
        "bias.exp_avg_sq: file [4], model [3]",
    ):
        assert part in message
