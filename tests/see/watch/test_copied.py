"""A copy of a model: what a pass writes is written there alone, whatever keeps it."""

from __future__ import annotations

import collections
import itertools
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.see.watch import copied as module
from headwise.see.watch.copied import CannotCopy, copied, same_classes
from headwise.see.watch.watch import watch


class Slot:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0

    def next(self) -> int:
        self.n += 1
        return self.n


class Schedule:
    def __init__(self) -> None:
        self.n = 0

    def __call__(self) -> int:
        self.n += 1
        return self.n


def counted(held: Any) -> float:
    held["n"] += 1
    return float(held["n"])


def added(held: Any) -> Any:
    held += 1
    return held[0]


def normed(held: Any) -> float:
    F.batch_norm(torch.rand(3, 1) + 1, held, torch.ones(1), training=True)
    return float(held)


def written(held: Any) -> float:
    held.data += 1
    return float(held)


WRITTEN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "numpy generator": (lambda: np.random.default_rng(0), lambda held: held.normal()),
    "numpy state": (lambda: np.random.RandomState(0), lambda held: held.randn()),
    "numpy array": (lambda: np.zeros(1), added),
    "Counter": (collections.Counter, counted),
    "defaultdict": (lambda: collections.defaultdict(int), counted),
    "OrderedDict": (lambda: collections.OrderedDict(n=0), counted),
    "callable": (Schedule, lambda held: held()),
    "slots": (Slot, lambda held: held.next()),
    "count": (itertools.count, next),
    "cycle": (lambda: itertools.cycle([1.0, 0.9, 0.8]), next),
    "tuple": (lambda: (torch.zeros(1),), lambda held: held[0].add_(1).item()),
    "dict of dict": (lambda: {"a": {"b": torch.zeros(1)}}, lambda held: held["a"]["b"].add_(1).item()),
    "frozen parameter": (lambda: nn.Parameter(torch.zeros(1), requires_grad=False), written),
    "batch norm as a function": (lambda: torch.zeros(1), normed),
    "torch generator": (
        lambda: torch.Generator().manual_seed(1),
        lambda held: torch.rand(1, generator=held).item(),
    ),
}


class Keeps(nn.Module):
    def __init__(self, make: Callable[[], Any], use: Callable[[Any], Any]) -> None:
        super().__init__()
        self.line, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.held, self.use = make(), use
        self.lock = threading.Lock()

    def forward(self, x: Tensor) -> Tensor:
        with self.lock:
            return self.norm(self.line(x * (1 + 1e-2 * float(self.use(self.held)))))


def ends(make: Callable[[], nn.Module], *, is_watched: bool) -> Tensor:
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watched = watch(model, optimizer, 2, live=False, budget=None, say=lambda _: None)
    if is_watched:
        watched.start()
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.rand(3, 4)).square().sum().backward()
        optimizer.step()
    watched.stop()
    if is_watched:
        assert watched.history[-1].norms, watched.notes
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("name", WRITTEN)
def test_a_watched_training_counts_as_it_would_alone(name: str) -> None:
    def make() -> nn.Module:
        return Keeps(*WRITTEN[name])

    assert torch.equal(ends(make, is_watched=False), ends(make, is_watched=True))


def test_an_embedding_that_renormalises_itself_does_so_in_training_alone(monkeypatch) -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.norm = nn.Embedding(9, 4, max_norm=1.0), nn.LayerNorm(4)
            nn.init.normal_(self.words.weight, std=3)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(self.words((x[:, 0] * 9).long()))

    monkeypatch.setattr(module, "SMALL", 0)
    model = Words()
    before = model.words.weight.detach().clone()
    twin, run, given = copied(model, model, ((torch.rand(3, 4),), {}))
    run(*given[0])
    assert twin is run and torch.equal(model.words.weight, before)
    assert twin.norm.weight.data_ptr() == model.norm.weight.data_ptr()
    assert torch.equal(ends(Words, is_watched=False), ends(Words, is_watched=True))


def test_results_of_autograd_that_a_model_keeps_and_hooks_of_the_users() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    seen: list[int] = []
    model.register_forward_hook(lambda *_: seen.append(1))
    model.kept = {"last": [model[0](torch.rand(1, 2))]}
    twin, run, given = copied(model, model[1], ((torch.rand(1, 2),), {}))
    assert run is twin[1] and run is not model[1]
    twin(given[0][0])
    assert seen == []


def test_a_method_is_one_of_the_copy_and_an_argument_its_part() -> None:
    model = nn.Linear(2, 2)
    twin, run, (_, names) = copied(model, model.forward, ((), {"with_model": model}))
    assert run.__self__ is twin and names["with_model"] is twin


def test_what_has_no_copy_is_said() -> None:
    model = nn.Linear(2, 2)
    model.source = (each for each in [1, 2])
    with pytest.raises(CannotCopy, match="generator"):
        copied(model, model, ((), {}))
    del model.source
    with pytest.raises(CannotCopy, match="no method"):
        copied(model, lambda: None, ((), {}))


def test_what_a_generator_of_the_models_gives_is_left_to_the_training() -> None:
    class Fed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(2, 2)
            self.source = (float(n) for n in range(9))

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x) * next(self.source)

    model = Fed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, 1, live=False, budget=None) as watched:
        for _ in range(4):
            model(torch.rand(3, 2)).sum().backward()
            optimizer.step()
    assert next(model.source) == 4.0
    assert any("generator" in note for note in watched.notes)


def test_counters_of_a_class_come_back() -> None:
    kind = types.new_class("Counting", (nn.Linear,))
    kind.calls = 1
    model = kind(2, 2)
    with same_classes(model):
        kind.calls += 1
        kind.late = 2
    assert kind.calls == 1 and not hasattr(kind, "late")
