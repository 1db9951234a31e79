"""Whatever a pass changes, in a model or in a random state, is afterwards as it was."""

from __future__ import annotations

import random
import warnings

import numpy as np
import torch
from torch import Tensor, nn

from headwise.see.watch.quiet import quiet, random_states


class Untidy(nn.Module):
    class Cache:
        def __init__(self) -> None:
            self.keys: dict[int, Tensor] = {}
            self.held = torch.zeros(2)
            self.inner = [[1], [2]]

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("count", torch.zeros(1))
        self.cache = Untidy.Cache()
        self.dice = random.Random(1)
        self.drawn = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.cache.keys[len(self.cache.keys)] = x
        self.cache.held += 1
        self.cache.inner.append([3])
        self.cache.inner[0].append(9)
        self.late = x
        random.random()
        np.random.rand()
        self.dice.random()
        torch.rand(1, generator=self.drawn)
        warnings.warn("noise", stacklevel=1)
        return self.norm(self.line(x)) + torch.rand(2)


def told(model: Untidy) -> list[object]:
    numbers = [t.tolist() for t in (model.count, model.cache.held, model.norm.running_mean)]
    return [
        numbers, dict(model.cache.keys), str(model.cache.inner), hasattr(model, "late"), model.training,
        model.norm.training, torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(),
        model.dice.getstate(), model.drawn.get_state().tolist(), torch.is_grad_enabled(),
        torch.is_autocast_cache_enabled(),
    ]  # fmt: skip


def test_a_pass_leaves_no_trace() -> None:
    model = Untidy()
    before = told(model)
    with quiet(model):
        assert not model.training and not torch.is_grad_enabled() and not torch.is_autocast_cache_enabled()
        model(torch.rand(3, 2))
    assert told(model) == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.rand(3, 2))
    assert told(model) != before  # without it, there are traces


def test_a_pass_that_fails_leaves_none_either() -> None:
    model = Untidy()
    before = told(model)
    try:
        with quiet(model):
            model(torch.rand(3, 2))
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert told(model) == before


def test_random_states_come_back() -> None:
    restore = random_states()
    first = torch.rand(1), random.random(), np.random.rand()
    restore()
    assert (torch.rand(1), random.random(), np.random.rand()) == first


def test_autocast_makes_the_gradient_it_would_have_made() -> None:
    """Weights cast without gradients must not be found in autocast's cache by the pass that trains."""
    model = nn.Linear(4, 4)
    x = torch.rand(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        with quiet(model):
            model(x)
        model(x).sum().backward()
    assert model.weight.grad is not None
