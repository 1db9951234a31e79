"""Loss and gradients of a copy are those of the model itself, which does not change."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.check import NotApplicable
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

VOCAB, WIDTH = 13, 8


class Model(nn.Module):
    """Its running statistics move in train mode; `unused` takes no part."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(VOCAB, WIDTH), nn.BatchNorm1d(WIDTH)
        self.drop, self.head = nn.Dropout(dropout), nn.Linear(WIDTH, VOCAB)
        self.unused = nn.Linear(2, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.drop(self.norm(self.words(ids).mT).mT))


def loss(out: Tensor, goal: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, 1), goal.flatten())


def probe_of(model: nn.Module, **more: Any) -> Probe:
    ids = torch.randint(0, VOCAB, (4, 9))
    given: dict[str, Any] = {"targets": ids.roll(-1, 1), "loss": loss, **more}
    return Probe(adapt(Subject(model, ids, kind="encoder", **given)))


def test_gradients_are_those_of_the_model_in_double_and_nothing_of_it_moves() -> None:
    model = Model()
    state = copy.deepcopy(model.state_dict())
    probe = probe_of(model)
    held = copy.deepcopy(probe.model.state_dict())
    found = probe.gradients()
    twin = copy.deepcopy(model).double().train()
    value = loss(twin(probe.subject.inputs), probe.subject.targets)
    value.backward()
    assert found.loss == pytest.approx(float(value.detach()), rel=1e-12)
    for name, p in twin.named_parameters():
        mine = found.by_parameter[name]
        assert (mine is None) == (p.grad is None) == name.startswith("unused")
        assert p.grad is None or (mine is not None and torch.allclose(mine, p.grad, atol=1e-12))
    assert found.by_logit is not None and float(found.by_logit.abs().sum()) > 0
    for now, was in ((model.state_dict(), state), (probe.model.state_dict(), held)):
        assert all(torch.equal(now[name], tensor) for name, tensor in was.items())
    assert all(p.grad is None for p in (*model.parameters(), *probe.model.parameters()))
    assert probe.gradients() is found and not probe.model.training


def test_a_loss_of_each_row_is_averaged_and_numbers_meet_in_one_type() -> None:
    def each(out: Tensor, goal: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), goal.flatten(), reduction="none")

    ids = torch.randint(0, VOCAB, (4, 9))
    several, one = (probe_of(Model().eval(), loss=each), probe_of(Model().eval()))
    out = torch.randn(4, 9, VOCAB)
    assert torch.allclose(several.loss(out, ids), one.loss(out, ids))
    squares = probe_of(Model(), loss=F.mse_loss, targets=torch.zeros(4, 9, VOCAB))
    assert squares.loss(out.double()).dtype == torch.float64


def test_the_recorded_loss_can_be_replayed_with_other_logits() -> None:
    probe = probe_of(Model())
    record, value, logits = probe.recorded_loss()
    assert logits is not None
    other = torch.randn_like(logits.tensor)
    (again,) = record.replay({logits: other}, [value])
    assert float(again) == pytest.approx(float(loss(other, probe.subject.targets)), rel=1e-12)
    assert float(value.tensor) == pytest.approx(float(loss(probe.given.logits, probe.subject.targets)))
    assert probe.recorded_loss()[0] is record
    with pytest.raises(NotApplicable, match="no tensor computed"):
        probe_of(Model(), loss=lambda out, goal: 1.0).recorded_loss()


def test_a_rehearsal_is_the_users_training_of_a_copy() -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    state = copy.deepcopy(model.state_dict())
    probe = probe_of(model, optimizer=optimizer)
    losses = probe.rehearse(3)
    twin = copy.deepcopy(model).train()
    own = torch.optim.Adam(twin.parameters(), lr=0.05)
    expected: list[float] = []
    for _ in range(3):
        value = loss(twin(probe.subject.inputs), probe.subject.targets)
        expected.append(float(value.detach()))
        own.zero_grad()
        value.backward()
        own.step()
    assert losses[:3] == pytest.approx(expected, rel=1e-5) and losses[3] < losses[0]
    assert not optimizer.state and all(torch.equal(model.state_dict()[n], t) for n, t in state.items())


def test_a_quiet_rehearsal_knows_no_dropout_and_one_without_optimizer_is_refused() -> None:
    def sgd(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    model = Model(0.5)
    probe = probe_of(model)
    watched: list[Any] = []
    quiet = probe.rehearse(2, optimizer=sgd, quiet=True, watch=lambda *both: watched.append(both))
    model.drop.p = 0.0
    assert quiet == pytest.approx(probe.rehearse(2, optimizer=sgd)) and len(watched) == 1
    model.drop.p = 0.5
    assert quiet != pytest.approx(probe.rehearse(2, optimizer=sgd))
    assert watched[0][0] is not model and model.drop.p == 0.5
    with pytest.raises(NotApplicable, match="no optimizer was given"):
        probe.rehearse(1)
