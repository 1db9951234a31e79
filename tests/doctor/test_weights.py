"""Who holds a weight, which are one, which a pass reads, how they were drawn."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.trace import recording
from headwise.doctor.weights import (
    depended_on,
    drawn,
    heads_of,
    in_products,
    lists,
    parameters_read,
    unregistered,
)


class Holder(nn.Module):
    def __init__(self, **held: object) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)


class Plain:
    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer


def closing(layer: nn.Module):
    return lambda x: layer(x)


@pytest.mark.parametrize(
    ("held", "where"),
    [
        (lambda layer: [layer], "held[0]"),
        (lambda layer: (1, {"a": layer}), "held[1]['a']"),
        (lambda layer: functools.partial(layer), "held's arguments"),
        (closing, "held's closure"),
        (Plain, "held.layer"),
        (lambda layer: [layer.weight], "held[0]"),
    ],
)
def test_weights_in_plain_attributes_are_found(held, where):
    found = unregistered(Holder(held=held(nn.Linear(3, 3))))
    assert [each.where for each in found] == [where]
    assert all(t.requires_grad for t in found[0].tensors)


def test_registered_frozen_and_repeated_weights_are_not_unregistered():
    layer = nn.Linear(3, 3)
    frozen = nn.Linear(3, 3).requires_grad_(False)
    assert not unregistered(
        Holder(layer=layer, again=[layer], teacher=[frozen], number=[1, "a"], fixed=torch.ones(2))
    )


def test_a_result_of_autograd_is_found_as_a_bare_tensor():
    found = unregistered(Holder(weight=nn.Parameter(torch.ones(2, 2)) * 2.0))
    assert [(each.where, each.module) for each in found] == [("weight", None)]


def test_entries_of_lists_come_as_often_as_they_are_held():
    layer = nn.Linear(2, 2)
    assert [
        (path, [name for name, _ in entries])
        for path, entries in lists(Holder(blocks=nn.ModuleList([layer] * 3)))
    ] == [("blocks", ["blocks.0", "blocks.1", "blocks.2"])]


@pytest.mark.parametrize("shape", [(8, 8), (48, 48), (192, 48), (30, 500), (700, 700)])
@pytest.mark.parametrize("draw", [torch.randn, lambda *shape: torch.rand(*shape) * 2 - 1])
def test_drawn_weights_look_random(shape, draw):
    torch.manual_seed(sum(shape))
    told = drawn(draw(*shape))
    assert told.is_random and not told.is_constant
    assert 0.4 < told.rms < 1.2


def test_constants_tables_and_trained_weights_do_not_look_random():
    torch.manual_seed(0)
    angles = torch.arange(64.0)[:, None] / 10000 ** (torch.arange(32.0) / 32)
    sizes = torch.randn(64).exp()[:, None]
    assert drawn(torch.full((8, 8), 0.02)).is_constant
    assert not drawn(angles.sin()).is_random
    assert not drawn(torch.ones(40, 40).tril()).is_random
    assert not drawn(torch.randn(64, 64) * sizes).is_random
    assert math.isclose(drawn(torch.full((8, 8), -0.5)).rms, 0.5)


def recorded(run, model: nn.Module, x: Tensor):
    with torch.no_grad(), recording(model, [x]) as record:
        out = run(x)
    return record, record.value_of(out)


def test_products_tell_the_parameter_and_how_many_numbers_are_summed():
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 5, bias=False))
    record, out = recorded(model, model, torch.randn(2, 3, 6))
    assert [(use.name, use.fan_in) for use in in_products(record)] == [("0.weight", 6), ("2.weight", 4)]
    assert {use.name for use in in_products(record) if use.op in heads_of(out)} == {"2.weight"}


def test_what_is_read_and_what_the_result_depends_on_are_two_things():
    model = nn.ModuleDict({name: nn.Linear(3, 3, bias=False) for name in ("used", "dropped", "like", "idle")})

    def run(x: Tensor) -> Tensor:
        model["dropped"](x)
        return model["used"](x) + torch.zeros_like(model["like"](x))

    record, out = recorded(run, model, torch.randn(2, 3))
    assert parameters_read(record) == {"used.weight", "dropped.weight", "like.weight"}
    names = {v.name for v in depended_on([out]) if v.name.startswith("parameter")}
    assert names == {"parameter used.weight"}
