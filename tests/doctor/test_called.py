"""A function as a model: what it reaches is found, and its copy is a copy, whatever way it was written."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import twin, unwrap
from headwise.doctor.called import Called
from headwise.doctor.examine import examine

HEAD = nn.Linear(4, 5)
LAYERS = [nn.Linear(4, 4), nn.Linear(4, 4)]
SCALE = 3.0


def by_global(x: Tensor) -> Tensor:
    return HEAD(sum(layer(x) for layer in LAYERS)) * SCALE


def by_another(x: Tensor) -> Tensor:
    return by_global(x) + 1


def by_default(x: Tensor, layer: nn.Module = HEAD, *, more: Any = (LAYERS[0],)) -> Tensor:
    return layer(more[0](x))


class Keeper:
    """An object that is no module, with a method that is the model."""

    def __init__(self) -> None:
        self.layer = nn.Linear(4, 5)

    def run(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def __call__(self, x: Tensor) -> Tensor:
        return self.run(x)


def closed() -> Callable[[Tensor], Tensor]:
    layer, table = nn.Linear(4, 5), nn.Parameter(torch.randn(5))

    def inner(x: Tensor) -> Tensor:
        return layer(x) + table

    def outer(x: Tensor) -> Tensor:
        return inner(x) * 2

    return outer


def itself() -> Callable[[Tensor, int], Tensor]:
    layer = nn.Linear(4, 4)

    def again(x: Tensor, left: int = 2) -> Tensor:
        return again(layer(x), left - 1) if left else x

    return again


def preset(layer: nn.Module, x: Tensor, *, more: nn.Module) -> Tensor:
    return more(layer(x))


FORMS: dict[str, tuple[Callable[[], Any], int]] = {  # how to make it, how many parameters it reaches
    "global": (lambda: by_global, 6),
    "another function": (lambda: by_another, 6),
    "default": (lambda: by_default, 4),
    "closure": (closed, 3),
    "recursion": (itself, 2),
    "method": (lambda: Keeper().run, 2),
    "object": (Keeper, 2),
    "partial": (lambda: functools.partial(preset, nn.Linear(4, 4), more=nn.Linear(4, 5)), 4),
    "method of a module": (lambda: nn.Sequential(nn.Linear(4, 4)).forward, 2),
    "lambda": (lambda: lambda x: HEAD(x), 2),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_copy_runs_on_copies_of_what_the_function_reaches(form: str) -> None:
    make, count = FORMS[form]
    function = make()
    model, notes = unwrap(function)
    assert isinstance(model, Called) and any("function" in note for note in notes)
    mine = dict(model.named_parameters())
    assert len(mine) == count
    x = torch.randn(3, 4)
    before = function(x).detach()
    other, _ = twin(model, None)
    assert torch.equal(other(x), before)
    theirs = dict(other.named_parameters())
    assert theirs.keys() == mine.keys()
    assert not {id(p) for p in mine.values()} & {id(p) for p in theirs.values()}
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(-2)
    assert torch.equal(function(x), before)  # the original is as it was
    assert not torch.allclose(other(x), before)  # and every parameter of the copy is in use by the copy
    with torch.no_grad():
        for p, q in zip(mine.values(), theirs.values(), strict=True):
            q.copy_(p)
    assert torch.equal(other(x), before)


def test_the_optimizer_of_a_copy_trains_the_copy() -> None:
    function = closed()
    model, _ = unwrap(function)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    other, theirs = twin(model, optimizer)
    x = torch.randn(3, 4)
    before = function(x).detach()
    other(x).sum().backward()
    theirs.step()
    assert torch.equal(function(x), before) and not torch.equal(other(x), before)
    assert all(p.grad is None for p in model.parameters())


def test_what_reaches_nothing_stays_the_same_object() -> None:
    model = Called(by_another)
    other = copy.deepcopy(model)
    assert other.function.__globals__["SCALE"] is SCALE
    assert other.function.__globals__["Keeper"] is Keeper
    assert other.function.__code__ is by_another.__code__
    assert other.function.__globals__["by_global"] is not by_global


def test_a_copy_keeps_its_mode() -> None:
    model = Called(closed()).eval()
    assert not any(module.training for module in copy.deepcopy(model).modules())


def test_a_function_is_examined_as_its_module_is() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.words(ids))

    module = Words()
    ids = torch.randint(0, 11, (4, 12))
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3)

    def loss(out: Tensor, goal: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out.flatten(0, 1), goal.flatten())

    def function(ids: Tensor) -> Tensor:
        return module(ids)

    given: dict[str, Any] = {
        "targets": ids.roll(-1, 1),
        "loss": loss,
        "optimizer": optimizer,
        "kind": "decoder",
    }
    one = examine(module, ids, **given)
    two = examine(function, ids, **given)
    assert [f.name for f in one.findings] == [f.name for f in two.findings]
    assert {i: v.verdict for i, v in one.verdicts.items()} == {i: v.verdict for i, v in two.verdicts.items()}
