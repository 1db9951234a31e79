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
from headwise.doctor.examine import examine
from headwise.doctor.probe import Probe
from headwise.doctor.rehearsal import tame
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


# Sparse gradients, losses that stop


class Sparse(Model):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH, sparse=True)
        self.unused = nn.Linear(1, 1)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def test_sparse_gradients_are_filled_up() -> None:
    torch.manual_seed(0)
    sparse = Sparse()
    full = copy.deepcopy(sparse)
    full.words.sparse = False
    ids = torch.randint(0, VOCAB, (4, 9))
    one, two = (
        Probe(adapt(Subject(model, ids, kind="encoder", targets=ids, loss=loss))) for model in (sparse, full)
    )
    grads = one.gradients().by_parameter["words.weight"]
    other = two.gradients().by_parameter["words.weight"]
    assert grads is not None and other is not None and torch.allclose(grads, other)
    assert tame(one).losses == pytest.approx(tame(two).losses)
    assert one.stop is None  # no optimizer is given


def test_an_optimizer_that_refuses_sparse_gradients_is_told() -> None:
    probe = probe_of(model := Sparse(), optimizer=adam(model))
    assert probe.stop is not None and probe.stop.phase == "step"
    with pytest.raises(NotApplicable, match="optimizer's step stops"):
        probe.rehearse(1)
    report = examine(model, probe.subject.inputs, kind="encoder", targets=probe.subject.targets, loss=loss,
                     optimizer=adam(model), select=["HW002", "HW701", "HW702"])  # fmt: skip
    (finding,) = report.findings
    assert finding.id == "HW002" and "sparse" in finding.evidence and "SparseAdam" in finding.fix
    assert (
        report.verdicts["HW701"].verdict == "clear" and report.verdicts["HW702"].verdict == "not-applicable"
    )


def test_sparse_adam_is_rehearsed_as_it_is() -> None:
    class Both:
        """SparseAdam for the table, Adam for the rest, as one."""

        def __init__(self, model: Sparse) -> None:
            rest = [p for name, p in model.named_parameters() if not name.startswith(("words", "unused"))]
            self.one = torch.optim.SparseAdam(model.words.parameters(), lr=0.01)
            self.two = torch.optim.Adam(rest, lr=0.01)

        def step(self) -> None:
            self.one.step()
            self.two.step()

    probe = probe_of(model := Sparse(), optimizer=Both(model))
    losses = probe.rehearse(4)
    assert probe.stop is None and losses[-1] < losses[0]


def test_where_the_loss_stops_is_told_with_what_had_reached_it() -> None:
    def flat(out: Tensor, goal: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), goal)

    probe = probe_of(Model(), loss=flat)
    assert probe.stop is not None and probe.stop.phase == "loss" and isinstance(probe.stop.error, ValueError)
    assert probe.lacks(frozenset({"loss"})) == "the loss stops with an exception (see training-stops)"
    assert probe_of(Model()).stop is None and probe_of(Model()).lacks(frozenset({"loss"})) is None
    report = examine(Model(), probe.subject.inputs, kind="encoder", targets=probe.subject.targets, loss=flat)
    (finding,) = [f for f in report.findings if f.severity == "error"]
    assert (finding.id, finding.line) == ("HW002", flat.__code__.co_firstlineno + 1)
    assert "the output [4, 9, 13] float32, the targets [4, 9] int64" in finding.evidence
    assert not report.with_verdict("could-not-run")


def test_a_loss_that_takes_other_arguments_is_a_note() -> None:
    report = examine(Model(), torch.randint(0, VOCAB, (4, 9)), targets=torch.zeros(4, 9).long(),
                     loss=lambda out: out.mean(), select=["HW002"])  # fmt: skip
    assert [f.severity for f in report.findings] == ["note"]


def test_a_backward_pass_that_stops_is_a_warning() -> None:
    class Overwrites(Model):
        def forward(self, ids: Tensor) -> Tensor:
            squared = super().forward(ids).exp()
            squared += 1
            return squared

    probe = probe_of(Overwrites())
    assert probe.stop is not None and probe.stop.phase == "backward"


def test_weights_of_classes_in_single_precision_are_met_in_single_precision() -> None:
    weights = torch.rand(VOCAB)

    def weighted(out: Tensor, goal: Tensor) -> Tensor:
        return F.cross_entropy(out.flatten(0, 1), goal.flatten(), weight=weights)

    probe = probe_of(Model(), loss=weighted)
    assert probe.stop is None and probe.dtype == torch.float64
    value = weighted(probe.given.logits.float(), probe.subject.targets)
    assert probe.recorded_loss()[1].tensor.dtype == torch.float32
    assert float(probe.recorded_loss()[1].tensor) == pytest.approx(float(value), rel=1e-6)
    slopes = probe.gradients().by_logit
    assert slopes is not None and slopes.dtype == torch.float64
