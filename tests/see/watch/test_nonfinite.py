"""Where numbers stop being finite: forwards, backwards, in the loss, in the weights; with their line."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.see.watch.calls import Call
from headwise.see.watch.layers import dense
from headwise.see.watch.nonfinite import FEW, Guard, NotFinite, origin
from see.watch.loops import Fused, batch


class Odd(Fused):
    """Its result goes through a function that is set from outside."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.then(super().forward(ids))


def run(then, gradients=None) -> tuple[Odd, NotFinite]:
    torch.manual_seed(0)
    model = Odd()
    model.then = then
    call = Call(model, ((batch(torch.Generator().manual_seed(1)),), {}), [torch.get_rng_state()])
    call.gradients = gradients or {}
    return model, origin(3, model, [call])


def test_forwards_an_overflow_is_the_cause_of_what_it_becomes() -> None:
    def then(x: Tensor) -> Tensor:
        large = (x * 1e30).exp()  # OVERFLOWS
        return large - large

    _, found = run(then)
    assert (found.step, found.phase, found.operation) == (3, "forward", "sub")
    assert found.where.endswith("OVERFLOWS") and "exp made" in found.told


def test_backwards_the_operation_whose_gradient_is_not_finite() -> None:
    _, found = run(lambda x: x + (x * 0).pow(2).sum(-1, keepdim=True).sqrt())
    assert (found.phase, found.operation) == ("backward", "sqrt")
    assert found.operands == "[4, 9, 1] (0 to 0)" and found.line > 0


def test_what_comes_in_bad_from_the_loss_is_the_losss() -> None:
    _, found = run(lambda x: x, {0: torch.full((4, 9, 20), float("nan"))})
    assert found.phase == "loss" and not found.where


def test_weights_that_were_bad_before() -> None:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.bias[0] = float("nan")
    found = origin(1, model, [])
    assert found.phase == "weights" and "bias" in found.told


def test_without_a_call_nothing_can_be_run_again() -> None:
    assert "watch.called" in origin(1, nn.Linear(2, 2), []).told


def test_running_again_leaves_no_trace() -> None:
    before = torch.get_rng_state()
    torch.manual_seed(0)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    model, _ = run(lambda x: x.log())
    assert model.calls == 0 and model.count == 0 and model.lengths == []
    assert all(p.grad is None for p in model.parameters())
    assert after is not None


@pytest.mark.parametrize("place", ["head.weight", "tokens.weight", "blocks.0.n1.weight"])
def test_gradients_that_are_not_finite_are_seen(place: str) -> None:
    model = Fused()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    guard = Guard(list(model.parameters()))
    assert guard.is_finite(all_of_them=True) and guard.is_finite(all_of_them=False)
    dense(model.get_parameter(place)).fill_(float("inf"))
    assert not guard.is_finite(all_of_them=True)


def test_squares_that_overflow_are_no_alarm() -> None:
    model = nn.Linear(2, 2)
    model.weight.grad = torch.full((2, 2), 1e30)
    assert Guard(list(model.parameters())).is_finite(all_of_them=True)


def test_a_few_gradients_stand_for_all_of_a_deep_model() -> None:
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(30)))
    guard = Guard(list(model.parameters()))
    assert len(guard._few) <= FEW < 60
    model(torch.full((1, 4), float("nan"))).sum().backward()
    assert not guard.is_finite(all_of_them=False)


def test_a_pass_that_is_finite_when_run_again_accuses_nothing() -> None:
    _, found = run(lambda x: x)
    assert found.phase == "unknown" and found.told.startswith("run again, the pass was finite")


def test_what_the_numbers_overflow_in_is_told() -> None:
    _, wide = run(lambda x: x / (x * 0))
    _, half = run(lambda x: ((x + 1e4).half() * (x + 1e4).half()).float())
    assert (wide.is_half, half.is_half) == (False, True)
