"""Rehearsals train copies: the user's steps as they are, or scaled, whoever sets the rate."""

from __future__ import annotations

import linecache
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.blame import constructed
from headwise.doctor.check import NotApplicable
from headwise.doctor.made import Making
from headwise.doctor.probe import Probe
from headwise.doctor.rehearsal import (
    STEPS,
    STEPS_LONG,
    TAME,
    Course,
    drawn_at,
    long,
    lowered,
    norm_after_add,
    optimizer_line,
    own,
    tame,
    warmed,
)
from headwise.doctor.subject import Subject

V = 11


class Model(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.drop, self.head = nn.Embedding(V, 8), nn.Dropout(dropout), nn.Linear(8, V)  # HEAD
        nn.init.normal_(self.head.weight, std=0.1)  # DRAWN

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.drop(self.words(ids)))


class Noam(torch.optim.SGD):
    """Sets its own rate at each step: whatever the groups are given is overwritten."""

    def __init__(self, parameters: Any, rate: float) -> None:
        super().__init__(parameters, lr=0.0)
        self.rate, self.count = rate, 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.count += 1
        for group in self.param_groups:
            group["lr"] = self.rate  # RATE
        super().step()


class Wrapper:
    """The annotated Transformer's: no optimizer itself, and nothing but a step."""

    def __init__(self, optimizer: torch.optim.Optimizer, rate: float) -> None:
        self.optimizer, self.rate = optimizer, rate

    def step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate  # WRAPPED RATE
        self.optimizer.step()


def loss(out: Tensor, goal: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, 1), goal.flatten())


def probe_of(model: nn.Module, optimizer: Any, making: Making | None = None, **more: Any) -> Probe:
    ids = torch.randint(0, V, (4, 9), generator=torch.Generator().manual_seed(2))
    given = {"kind": "decoder", "targets": ids.roll(-1, 1), "loss": loss, **more}
    return Probe(adapt(Subject(model, ids, optimizer=optimizer, **given)), making)


def line_of(mark: str) -> int:
    lines = linecache.getlines(__file__)
    return next(n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# {mark}"))


def trained_by_hand(model: nn.Module, probe: Probe, rates: list[float]) -> list[float]:
    """Plain gradient descent at these rates; the loss before each step and after the last."""
    ids, goal = probe.subject.inputs, probe.subject.targets
    losses: list[float] = []
    for rate in rates:
        value = loss(model(ids), goal)
        losses.append(float(value.detach()))
        grads = torch.autograd.grad(value, list(model.parameters()))
        with torch.no_grad():
            for p, grad in zip(model.parameters(), grads, strict=True):
                p -= rate * grad
    return [*losses, float(loss(model(ids), goal).detach())]


FORMS = ["plain", "own rate", "wrapper"]


def made(form: str, model: nn.Module, rate: float) -> Any:
    if form == "plain":
        return torch.optim.SGD(model.parameters(), lr=rate)
    if form == "own rate":
        return Noam(model.parameters(), rate)
    return Wrapper(torch.optim.SGD(model.parameters(), lr=0.0), rate)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["own", "lowered", "warmed"])
def test_the_real_step_is_scaled_whoever_sets_the_rate(form: str, how: str) -> None:
    torch.manual_seed(0)
    model = Model()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    probe = probe_of(model, made(form, model, 0.5))
    ask = {
        "own": lambda: own(probe),
        "lowered": lambda: lowered(probe, 0.1),
        "warmed": lambda: warmed(probe),
    }[how]
    course = ask()
    rates = {
        "own": [0.5] * STEPS,
        "lowered": [0.05] * STEPS,
        "warmed": [0.5 * (n + 1) / STEPS for n in range(STEPS)],
    }[how]
    assert course.rates == pytest.approx(rates)
    assert len(course.losses) == STEPS + 1
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())
    assert course.losses == pytest.approx(trained_by_hand(model, probe, rates), rel=1e-4)
    assert ask() is course  # asked once


def test_moments_are_the_users_too() -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    probe = probe_of(model, optimizer)
    low, full = lowered(probe, 0.01), own(probe)
    assert low.rates == pytest.approx([0.001] * STEPS) and full.rates == pytest.approx([0.1] * STEPS)
    assert low.end > full.end and 0 < low.moved < full.moved / 20
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(("form", "mark"), [("own rate", "RATE"), ("wrapper", "WRAPPED RATE")])
def test_who_sets_the_rate_is_known(form: str, mark: str) -> None:
    model = Model()
    course = own(probe_of(model, made(form, model, 0.1)))
    assert course.set_at[0].file == __file__ and course.set_at[0].line == line_of(mark)
    assert own(probe_of(Model(), made("plain", model, 0.1))).set_at == []


def test_the_control_needs_no_optimizer_and_is_tame() -> None:
    probe = probe_of(Model(0.5), None)
    course = tame(probe)
    assert course.rates == pytest.approx([TAME] * STEPS) and course.end < course.start
    with pytest.raises(NotApplicable, match="no optimizer was given"):
        own(probe)


def test_the_long_one_learns_the_batch_without_dropout() -> None:
    def certain(out: Tensor, goal: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), (goal % 3).flatten())

    probe = probe_of(Model(0.9), None, loss=certain)
    course = long(probe)
    assert len(course.losses) == STEPS_LONG + 1 and course.rates[0] == pytest.approx(3 * TAME)
    assert course.losses == sorted(course.losses, reverse=True)  # no chance in it
    assert tame(probe).losses != sorted(tame(probe).losses, reverse=True)


def test_it_stops_where_the_loss_is_no_number() -> None:
    model = Model()
    course = own(probe_of(model, torch.optim.SGD(model.parameters(), lr=1e30)))
    assert not math.isfinite(course.losses[-1]) and len(course.losses) < STEPS
    assert course.end == math.inf and course.fell == -math.inf and math.isfinite(course.best)


@pytest.mark.parametrize("optimizer", [object(), nn.Linear(1, 1)])
def test_what_is_no_optimizer_cannot_be_rehearsed(optimizer: Any) -> None:
    with pytest.raises(NotApplicable):
        own(probe_of(Model(), optimizer))


def test_targets_that_are_numbers_meet_outputs_of_their_own_type() -> None:
    class Series(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.line(x)

    model = Series()
    x = torch.randn(4, 9, 3)
    subject = Subject(
        model, x, targets=x * 2, loss=F.mse_loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)
    )
    probe = Probe(adapt(subject))
    assert own(probe).fell > 0 and probe.gradients().loss == pytest.approx(own(probe).start, rel=1e-5)


def test_a_loss_that_writes_to_its_targets_and_a_model_to_its_inputs_harm_nothing() -> None:
    class Writes(Model):
        def forward(self, ids: Tensor) -> Tensor:
            ids.clamp_(max=5)
            return super().forward(ids)

    def greedy(out: Tensor, goal: Tensor) -> Tensor:
        goal[goal == 3] = -100
        return loss(out, goal)

    model = Writes()
    probe = probe_of(model, torch.optim.SGD(model.parameters(), lr=0.1), loss=greedy)
    ids, goal = probe.subject.inputs.clone(), probe.subject.targets.clone()
    assert own(probe).fell > 0 and (probe.gradients().loss, probe.recorded_loss()) is not None
    assert torch.equal(probe.subject.inputs, ids) and torch.equal(probe.subject.targets, goal)


# A course


def test_a_course_says_where_it_began_and_ended() -> None:
    course = Course([4.0, 3.0, 2.0, 1.0, 1.0, 3.0, 1.0, 1.0])
    assert (course.start, course.end, course.best) == (4.0, 1.0, 1.0) and course.fell == pytest.approx(0.75)
    assert Course([math.nan]).best == math.inf and Course([0.0, 0.0]).fell == -math.inf


# Lines


def test_lines_of_optimizer_layers_and_weights() -> None:
    with Making() as making:
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # MADE
    probe = probe_of(model, optimizer, making)
    place = optimizer_line(probe)
    assert place is not None and place.line == line_of("MADE")
    layer = constructed(probe, "head")
    assert layer is not None and layer.line == line_of("HEAD")
    drawn, weight = drawn_at(probe, probe.base.logits_value)
    assert (
        drawn is not None and drawn.line == line_of("DRAWN") and weight is not None and weight.shape == (V, 8)
    )
    assert optimizer_line(probe_of(model, optimizer)) is None


@pytest.mark.parametrize(("first", "norms"), [(False, 2), (True, 0)])
def test_norms_that_read_a_sum_are_post_norms(first: bool, norms: int) -> None:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(V, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=first)
            self.head = nn.Linear(8, V)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.layer(self.words(ids)))

    main, other = norm_after_add(probe_of(Stack(), None))
    assert len(main) == norms and other == []
    assert all(path.startswith("layer.norm") for path in main)
