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
    assert calls.seen == []
    assert no_hook() is nothing and nothing(1, 2) is None
    calls.stop()
