"""Parameters by layer; sizes of gradients and steps against those computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headwise.see.watch import layers
from headwise.see.watch.layers import Sizes, dense, layers_of
from see.watch.loops import MODELS, Fused, Own, batch, loss_of


def test_the_members_of_a_stack_are_layers_and_what_lies_beside_is_too() -> None:
    names = [layer.name for layer in layers_of(Fused())]
    assert names == ["tokens", "places", "blocks.0", "blocks.1", "batch_norm", "norm", "head"]
    assert [layer.name for layer in layers_of(MODELS["by hand"]())][-1] == "itself"
    assert "model.encoder.blocks.0" in [layer.name for layer in layers_of(Own())]


def test_every_parameter_is_in_one_layer() -> None:
    model = Fused()
    model.head.weight = model.tokens.weight  # shared: it belongs to the first
    named = [name for layer in layers_of(model) for name, _ in layer.parameters]
    assert sorted(named) == sorted(name for name, _ in model.named_parameters())


@pytest.mark.parametrize("is_large", [False, True])
def test_gradients_and_steps(is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_large:
        monkeypatch.setattr(layers, "LARGE", 0)
        monkeypatch.setattr(layers, "PART", 16)
    model = Fused()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss_of(model, batch(torch.Generator().manual_seed(1))).backward()
    sizes = Sizes(layers_of(model))
    gradients = sizes.gradients(2.0)
    expected = sum(float(p.grad.square().sum()) for p in model.norm.parameters()) ** 0.5
    assert gradients["norm"] == pytest.approx(expected / 2, rel=1e-5)
    held = {id(p) for p in model.parameters()} - {id(model.head.bias)}
    before = model.head.weight.detach().clone()
    sizes.keep(held)
    optimizer.step()
    shares, still, moving = sizes.moved()
    after = model.head.weight.detach()
    if not is_large:
        share = float((after - before).norm() / before.norm())
        assert shares["head"] == pytest.approx(share, rel=1e-4)
    assert shares["head"] and shares["norm"] is None  # a norm has no matrix
    assert "head.weight" in moving and "head.bias" not in moving and still == []


def test_what_does_not_move_is_told_where_a_gradient_came() -> None:
    model = nn.Linear(2, 2)
    sizes = Sizes(layers_of(model))
    model.weight.grad = torch.ones(2, 2)
    model.bias.grad = torch.zeros(2)
    sizes.keep()
    assert sizes.moved()[1] == ["weight"]
    model.weight.grad = None
    assert sizes.without() == ["weight"]


def test_a_sparse_gradient_is_read_by_its_values() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1])).sum().backward()
    assert dense(table.weight).tolist() == [[2.0, 2.0]]
