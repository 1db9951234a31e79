"""Calls of a model from outside: each once, with what it was given; copies take no hook along."""

from __future__ import annotations

import copy

import torch
from torch import nn

from headwise.see.watch import calls as module
from headwise.see.watch.calls import Call, Calls, no_hook, nothing
from see.watch.loops import Fused, batch


def test_a_call_is_heard_once_and_not_the_calls_within() -> None:
    model = Fused()
    entered: list[Call] = []
    calls = Calls(model, model, entered.append)
    calls.start()
    calls.open()
    ids = batch(torch.Generator().manual_seed(1))
    out = model(ids=ids)
    model.tokens(ids)
    assert [call.run for call in entered] == [model, model.tokens]
    assert entered[0].arguments == ((), {"ids": ids})
    out.sum().backward()
    assert entered[0].gradients[0].shape == out.shape
    with calls.paused():
        model(ids)
    with torch.no_grad():
        model(ids)
    model.eval()(ids)
    assert len(entered) == 2
    calls.stop()


def test_between_looks_only_what_is_called_from_outside_is_heard() -> None:
    model = Fused()
    calls = Calls(model, model, lambda _: None)
    calls.start()
    calls.open()
    ids = batch(torch.Generator().manual_seed(1))
    model(ids)
    calls.close()
    calls.settle()
    assert [m for m in model.modules() if m._forward_pre_hooks] == [model]
    model(ids)
    assert len(calls.seen) == 1 and torch.equal(calls.seen[0].random[0][:8], torch.get_rng_state()[:8])
    calls.stop()
    assert not model._forward_pre_hooks and not model._forward_hooks


def test_old_calls_go_when_they_hold_much(monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    model = nn.Linear(4, 4)
    calls = Calls(model, model, lambda _: None)
    calls.start()
    calls.open()
    for _ in range(40):
        model(torch.rand(4, 4))
    assert len(calls.seen) == 1000 // 64
    calls.stop()


def test_a_function_that_is_told_of_is_heard_alone() -> None:
    model = Fused()
    entered: list[Call] = []
    calls = Calls(model, model, entered.append)
    around = calls.around(lambda ids: model(ids).mean(), model)
    ids = batch(torch.Generator().manual_seed(1))
    around(ids)
    assert entered == []  # not started
    calls.start()
    calls.open()
    loss = around(ids)
    assert [call.run for call in entered] == [model]
    assert calls.seen[0].loss is not None and torch.equal(calls.seen[0].loss, loss.detach())
    calls.stop()


def test_a_copy_has_hooks_that_do_nothing() -> None:
    model = nn.Linear(2, 2)
    calls = Calls(model, model, lambda _: None)
    calls.start()
    calls.open()
    twin = copy.deepcopy(model)
    twin(torch.rand(1, 2))
    assert not calls.seen
    assert no_hook() is nothing and nothing(1, 2) is None
    calls.stop()


def test_a_weight_that_is_given_back_gets_no_hook() -> None:
    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.spread = nn.Linear(2, 2), nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return self.line(x), self.spread

    model = Policy()
    calls = Calls(model, model, lambda _: None)
    calls.start()
    calls.open()
    for _ in range(3):
        mean, spread = model(torch.rand(1, 2))
        (mean + spread).sum().backward()
    assert not model.spread._backward_hooks and len(calls.seen[0].gradients) == 1
    calls.stop()


def test_thousands_of_calls_without_a_step_keep_the_last_few() -> None:
    model = nn.Linear(2, 2)
    calls = Calls(model, model, lambda _: None)
    calls.start()
    calls.open()
    inputs = [torch.rand(1, 2) for _ in range(200)]
    for x in inputs:
        model(x)
    assert len(calls.seen) == module.MOST_KEPT
    assert calls.seen[-1].arguments[0][0] is inputs[-1]
    assert calls._held == 8 * module.MOST_KEPT
    calls.stop()


def test_a_number_beside_the_result_is_no_loss() -> None:
    class Clip(nn.Linear):
        def forward(self, x):
            return super().forward(x), self.weight.sum()

    model = Clip(2, 2)
    calls = Calls(model, model, lambda _: None)
    calls.start()
    calls.open()
    model(torch.rand(1, 2))
    assert calls.seen[0].loss is None
    named = calls.around(lambda x: {"logits": x, "loss": model.weight.sum()}, model)
    loss = named(torch.rand(1, 2))["loss"]
    assert calls.seen[1].loss is not None and torch.equal(calls.seen[1].loss, loss.detach())
    calls.stop()


def test_a_model_that_trains_in_evaluation_mode_is_heard_until_it_is_put_into_the_other() -> None:
    model = nn.Linear(2, 2).eval()
    calls = Calls(model, model, lambda _: None)
    calls.start()
    calls.open()
    model(torch.rand(1, 2))
    assert len(calls.seen) == 1
    model.train()(torch.rand(1, 2))
    model.eval()(torch.rand(1, 2))
    assert len(calls.seen) == 2
    calls.stop()


def test_what_fails_here_ends_nobodys_training_and_hooks_go_with_the_watch() -> None:
    def bad(_: Call) -> None:
        raise RuntimeError("here")

    model = nn.Linear(2, 2)
    failed: list[str] = []
    calls = Calls(model, model, bad, lambda error: failed.append(str(error)))
    calls.start()
    calls.open()
    model(torch.rand(1, 2))
    assert failed == ["here"]
    del calls
    model(torch.rand(1, 2))
    assert not model._forward_pre_hooks and not model._forward_hooks


def test_hooks_have_a_name() -> None:
    """torch.jit and torch.export ask each hook for its name."""
    model = nn.Linear(2, 2)
    calls = Calls(model, model, lambda _: None)
    calls.start()
    calls.open()
    assert {hook.__name__ for hook in model._forward_pre_hooks.values()} == {"_before"}
    calls.stop()
