"""Whatever is asked of a model, by whoever, it comes back as it was, to the bit."""

from __future__ import annotations

import copy
import random
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from headwise.doctor import check as check_module
from headwise.doctor import examine as examine_module
from headwise.doctor.check import check
from headwise.doctor.examine import examine
from headwise.doctor.untouched import default_dtype, same_bits, seed_everything, untouched
from headwise.errors import ConfigError

# Where types are checked at run time, the checker itself draws from Python's random numbers.
CHECKED = type(sys.modules[untouched.__module__].__loader__).__module__.startswith("jaxtyping")


class Small(nn.Module):
    """A decoder of one layer with a buffer that forward writes to, dropout, and a map that it keeps."""

    def __init__(self, width: int, dropout: float, fails: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.places = nn.Parameter(torch.randn(16, width) / 3)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.norm, self.drop = nn.BatchNorm1d(width), nn.Dropout(dropout)
        self.head = nn.Linear(width, 11)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.fails, self.map = fails, None

    def forward(self, ids: Tensor) -> Tensor:
        self.seen += 1
        x = self.drop(self.words(ids) + self.places[: ids.shape[1]])
        if self.fails and ids.shape[0] != 4:  # on every batch but the user's own
            raise RuntimeError("four rows, or none")
        scores = self.query(x) @ self.key(x).mT / x.shape[-1] ** 0.5
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        self.map = scores.masked_fill(~keep, float("-inf")).softmax(-1)
        x = x + self.map @ self.value(x)
        return self.head(self.norm(x.mT).mT)


def loss(output: Tensor, targets: Tensor) -> Tensor:
    np.random.rand()
    random.random()
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor]) -> Tensor:
    optimizer.zero_grad()
    value = loss(model(batch[0]), batch[1])
    value.backward()
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] *= 0.9
    return value


def generate(model: nn.Module, prompt: Tensor, count: int) -> Tensor:
    model.eval()
    for _ in range(count):
        prompt = torch.cat([prompt, model(prompt)[:, -1:].argmax(-1)], 1)
    return prompt


Photograph = dict[str, Any]


def photograph(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor
) -> Photograph:
    """Everything of the user's that could change, values copied."""
    taken: Photograph = {
        "modes": {name: module.training for name, module in model.named_modules()},
        "objects": {name: id(t) for name, t in [*model.named_parameters(), *model.named_buffers()]},
        "values": {
            name: t.detach().clone() for name, t in [*model.named_parameters(), *model.named_buffers()]
        },
        "grads": {
            n: None if p.grad is None else (id(p.grad), p.grad.clone()) for n, p in model.named_parameters()
        },
        "needs": {name: p.requires_grad for name, p in model.named_parameters()},
        "hooks": {
            name: (len(module._forward_hooks), len(module._forward_pre_hooks), len(module._backward_hooks))
            for name, module in model.named_modules()
        },
        "global hooks": (
            len(torch_module._global_forward_hooks),
            len(torch_module._global_forward_pre_hooks),
            len(torch_module._global_backward_hooks),
        ),
        "kept": model.map if isinstance(model, Small) and isinstance(model.map, Tensor) else None,
        "attributes": {name: set(vars(module)) for name, module in model.named_modules()},
        "groups": [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups],
        "in groups": [[id(p) for p in group["params"]] for group in optimizer.param_groups],
        "state": copy.deepcopy(
            [optimizer.state[p] for group in optimizer.param_groups for p in group["params"]]
        ),
        "random": (torch.get_rng_state(), None if CHECKED else random.getstate(), np.random.get_state()),
        "switches": (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
            torch.get_num_threads(),
        ),
        "batch": (inputs.clone(), targets.clone()),
    }
    return taken


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and same_bits(a, b)
    if isinstance(a, np.ndarray):
        return bool((a == b).all())
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
    return a == b


def changed(before: Photograph, after: Photograph) -> list[str]:
    return [name for name in before if not alike(before[name], after[name])]


def subject(numbers: random.Random, fails: bool) -> tuple[Small, torch.optim.Optimizer, Tensor, Tensor]:
    """A small model in a random state: modes module by module, some gradients, some frozen, a step taken."""
    torch.manual_seed(numbers.randrange(1000))
    model = Small(numbers.choice([6, 8]), numbers.choice([0.0, 0.3]), fails)
    ids = torch.randint(1, 11, (4, 12))
    targets = ids.roll(-1, 1)
    kind = numbers.choice([torch.optim.SGD, torch.optim.AdamW])
    optimizer = kind(model.parameters(), lr=numbers.choice([1e-3, 1e-2]))
    if numbers.random() < 0.5:
        was, model.fails = model.fails, False
        step(model, optimizer, (ids, targets))
        model.fails = was
    for module in model.modules():
        module.training = numbers.random() < 0.5
    for p in model.parameters():
        choice = numbers.random()
        if choice < 0.3:
            p.grad = None
        elif choice < 0.6:
            p.grad = torch.randn_like(p)
        if numbers.random() < 0.2:
            p.requires_grad_(False)
    if numbers.random() < 0.5:
        model.norm.register_forward_hook(lambda *_: None)
    np.random.seed(numbers.randrange(1000))
    random.seed(numbers.randrange(1000))
    return model, optimizer, ids, targets


def examined(
    model: Small, optimizer: torch.optim.Optimizer, ids: Tensor, targets: Tensor, **more: Any
) -> None:
    examine(
        model, ids, targets=targets, loss=loss, optimizer=optimizer, kind="decoder", pad_id=0,
        train_step=step, generate=generate, **more,
    )  # fmt: skip


@settings(max_examples=2)
@given(numbers=st.randoms(use_true_random=False), fails=st.booleans())
def test_an_examination_changes_nothing(numbers: random.Random, fails: bool) -> None:
    model, optimizer, ids, targets = subject(numbers, fails)
    before = photograph(model, optimizer, ids, targets)
    examined(model, optimizer, ids, targets)
    assert changed(before, photograph(model, optimizer, ids, targets)) == []


@settings(max_examples=3)
@given(numbers=st.randoms(use_true_random=False))
def test_nor_does_a_model_that_cannot_be_called(numbers: random.Random) -> None:
    model, optimizer, ids, targets = subject(numbers, True)
    before = photograph(model, optimizer, ids[:3], targets[:3])
    with pytest.raises(ConfigError, match="could not be called"):
        examined(model, optimizer, ids[:3], targets[:3], select=["HW1"])
    assert changed(before, photograph(model, optimizer, ids[:3], targets[:3])) == []


def test_nor_does_a_check_that_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer, ids, targets = subject(random.Random(1), False)
    before = photograph(model, optimizer, ids, targets)

    def crash(probe: Any) -> Any:
        with torch.no_grad():
            for p in probe.user_model.parameters():
                p.add_(1)
        probe.user_model.train()
        torch.set_default_dtype(torch.float64)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(check_module, "_registry", {})
    check(id="HW999", title="t", why="w.", fix="Mend it.")(crash)
    monkeypatch.setattr(examine_module, "checks", lambda: list(check_module._registry.values()))
    with pytest.raises(KeyboardInterrupt):
        examined(model, optimizer, ids, targets)
    assert changed(before, photograph(model, optimizer, ids, targets)) == []


def harm(model: Small, optimizer: torch.optim.Optimizer, ids: Tensor, targets: Tensor) -> None:
    """What a careless function of the user's might do to the originals."""
    model.train()
    step(model, optimizer, (ids, targets))
    model.head.weight.data.mul_(2)  # which the version of a tensor does not tell
    model.words.weight.requires_grad_(False)
    model.query.register_forward_hook(lambda *_: None)
    model.seen = torch.tensor(77)
    model.extra = nn.Linear(2, 2)
    optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["new"] = 5.0, True
    optimizer.state.clear()
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.backends.mha.set_fastpath_enabled(False)
    seed_everything(7)


@pytest.mark.parametrize("seed", range(4))
def test_what_a_careless_function_does_is_undone(seed: int) -> None:
    model, optimizer, ids, targets = subject(random.Random(seed), False)
    before = photograph(model, optimizer, ids, targets)
    with untouched(model, optimizer):
        harm(model, optimizer, ids, targets)
    after = photograph(model, optimizer, ids, targets)
    assert changed(before, after) in ([], ["kept"])  # what the module kept of its last call is no state


@pytest.mark.parametrize(
    ("duty", "shows"),
    [
        ("_values", {"values"}),
        ("_optimizer_state", {"groups", "state"}),
        ("_restore_random", {"random"}),
        ("_held", {"modes", "objects", "hooks"}),
    ],
)
def test_a_guard_that_forgets_one_thing_is_caught(
    duty: str, shows: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"headwise.doctor.untouched.{duty}", lambda *_: lambda: None)
    model, _, ids, targets = subject(random.Random(2), False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step(model, optimizer, (ids, targets))
    model.eval()
    before = photograph(model, optimizer, ids, targets)
    with untouched(model, optimizer):
        harm(model, optimizer, ids, targets)
    assert shows <= set(changed(before, photograph(model, optimizer, ids, targets)))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_guard_works_when_something_raises(error: type[BaseException]) -> None:
    model, optimizer, ids, targets = subject(random.Random(3), False)
    before = photograph(model, optimizer, ids, targets)
    with pytest.raises(error), untouched(model, optimizer):
        harm(model, optimizer, ids, targets)
        raise error
    assert changed(before, photograph(model, optimizer, ids, targets)) in ([], ["kept"])


def test_a_wrapper_around_an_optimizer_comes_back_too() -> None:
    class Noam:
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner, self.count = inner, 0

        def step(self) -> None:
            self.count += 1
            self.inner.param_groups[0]["lr"] = 0.5**self.count
            self.inner.step()

    model = nn.Linear(3, 3)
    wrapper = Noam(torch.optim.Adam(model.parameters(), lr=0.25))
    with untouched(model, wrapper):
        model(torch.randn(2, 3)).sum().backward()
        wrapper.step()
    assert wrapper.count == 0 and wrapper.inner.param_groups[0]["lr"] == 0.25 and not wrapper.inner.state
    assert all(p.grad is None for p in model.parameters())


def test_same_bits_means_the_same_bits() -> None:
    nan = torch.tensor([float("nan"), 0.0])
    assert same_bits(nan, nan.clone()) and not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.zeros(2), torch.zeros(2).double()) and not same_bits(
        torch.zeros(2), torch.zeros(2, 1)
    )
    assert same_bits(torch.ones(3, 2).mT, torch.ones(2, 3)) and same_bits(
        torch.tensor(True), torch.tensor(True)
    )


def test_seeds_and_default_dtype() -> None:
    numbers: list[tuple[float, float, float]] = []
    for _ in range(2):
        seed_everything(5)
        numbers.append((float(torch.rand(())), random.random(), float(np.random.rand())))
    assert numbers[0] == numbers[1]
    was = torch.get_default_dtype()
    with pytest.raises(ValueError), default_dtype(torch.float64):
        assert torch.ones(1).dtype == torch.float64
        raise ValueError
    assert torch.get_default_dtype() == was


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_a_traced_module_is_told_in_one_line() -> None:
    traced = torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4))
    with pytest.raises(ConfigError, match="the module that it was traced from"), untouched(traced):
        pass
