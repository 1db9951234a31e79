"""Steps of whatever optimizer holds the parameters, once each, with a closure or without."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from headwise.see.watch.steps import Steps


def heard(model: nn.Module, optimizer: object = None) -> tuple[Steps, list[str]]:
    told: list[str] = []
    steps = Steps(
        model.parameters(),
        optimizer,
        lambda _o, loss: told.append(f"before {loss}"),
        lambda _o: told.append("after"),
    )
    steps.start()
    return steps, told


def test_only_the_steps_of_the_model_count() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    steps, told = heard(model)
    torch.optim.SGD(other.parameters(), lr=1.0).step()
    assert told == []
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert told == ["before None", "after"]
    steps.stop()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert told == ["before None", "after"]


def test_an_optimizer_that_calls_its_parents_step_is_heard_once() -> None:
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    model = nn.Linear(2, 2)
    torch.optim.SGD(model.parameters(), lr=1.0)  # torch patches the parent's step when one is made
    mine = Mine(model.parameters(), lr=1.0)
    steps, told = heard(model)
    for _ in range(2):
        mine.step()
    assert told == ["before None", "after"] * 2
    steps.stop()


def test_after_a_step_that_fails_the_next_is_heard() -> None:
    class Failing(torch.optim.SGD):
        fails = True

        def step(self, closure=None):
            if self.fails:
                raise RuntimeError("no")
            return super().step(closure)

    model = nn.Linear(2, 2)
    optimizer = Failing(model.parameters(), lr=1.0)
    steps, told = heard(model)
    with pytest.raises(RuntimeError, match="no"):
        optimizer.step()
    optimizer.fails = False
    optimizer.step()
    assert told == ["before None", "before None", "after"]
    steps.stop()


@pytest.mark.parametrize("is_named", [False, True])
def test_a_closure_computes_the_gradients_first(is_named: bool) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    steps, told = heard(model)

    def closure() -> float:
        told.append("closure")
        return 3.0

    result = optimizer.step(closure=closure) if is_named else optimizer.step(closure)
    assert result == 3.0
    assert told == ["closure", "before 3.0", "after"]
    steps.stop()


def test_what_wraps_the_optimizer_is_that_optimizer() -> None:
    class Wrapper:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

    model = nn.Linear(2, 2)
    inner, second = (torch.optim.SGD(model.parameters(), lr=1.0) for _ in range(2))
    steps, told = heard(model, Wrapper(inner))
    second.step()
    assert told == []
    inner.step()
    assert told == ["before None", "after"]
    steps.stop()


def test_what_nobody_holds_hears_nothing() -> None:
    model = nn.Linear(2, 2)
    steps, told = heard(model)
    handles = steps._handles
    del steps
    gc.collect()
    torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert told == []
    for handle in handles:
        handle.remove()
