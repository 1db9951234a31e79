"""What backward.py tells of one training pass: the gradient's losses and the first number that is none."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.backward import training_pass
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject


class Net(nn.Module):
    def __init__(self, middle) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.layer, self.head = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 9)
        self.middle = middle

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.middle(self, self.table(ids)))


def passed(middle, loss=lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())):
    ids = torch.arange(20).view(4, 5) % 9
    return training_pass(Probe(adapt(Subject(Net(middle), (ids,), targets=ids, loss=loss))))


def plain(net: Net, h: Tensor) -> Tensor:
    return net.layer(h)


def detached(net: Net, h: Tensor) -> Tensor:
    return net.layer(h).detach()


def through_data(net: Net, h: Tensor) -> Tensor:
    h = net.layer(h)
    return h.data * 2


def without_grad(net: Net, h: Tensor) -> Tensor:
    with torch.no_grad():
        h = net.layer(h)
    return h


def rounded(net: Net, h: Tensor) -> Tensor:
    return torch.round(net.layer(h))


def straight_through(net: Net, h: Tensor) -> Tensor:
    h = net.layer(h)
    return h + (torch.round(h) - h).detach()


def root_of_zero(net: Net, h: Tensor) -> Tensor:
    h = net.layer(h)
    zero = (h - h).sum(-1, keepdim=True)
    return h + zero.sqrt()


def divided_by_zero(net: Net, h: Tensor) -> Tensor:
    h = net.layer(h)
    return h + (h - h) / (h - h)


def line_of(function, words: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if n and words in line)


@pytest.mark.parametrize("middle", [plain, straight_through])
def test_nothing_is_cut_where_every_parameter_gets_a_gradient(middle):
    told = passed(middle)
    assert told.cuts == [] and told.bad is None
    assert set(told.states.values()) == {"finite"}


@pytest.mark.parametrize(
    ("middle", "words"),
    [(detached, "detach"), (through_data, ".data"), (without_grad, "no_grad"), (rounded, "round")],
)
def test_the_line_that_cuts_is_named_with_all_that_lies_behind(middle, words):
    cut = passed(middle).cuts[0]
    assert cut.place is not None
    assert (cut.place.function, cut.place.line) == (middle.__name__, line_of(middle, words))
    assert {"layer.weight", "layer.bias"} <= set(cut.parameters)
    assert "head.weight" not in cut.parameters


@pytest.mark.parametrize(
    ("middle", "phase", "words"),
    [(root_of_zero, "backward", "sqrt"), (divided_by_zero, "forward", "(h - h) /")],
)
def test_the_first_number_that_is_none_is_found_at_its_line(middle, phase, words):
    bad = passed(middle).bad
    assert bad is not None and bad.place is not None
    assert (bad.phase, bad.place.line) == (phase, line_of(middle, words))


def infinite(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, 1), y.flatten()) + torch.log(y.double() * 0).sum()


def test_an_infinite_loss_is_told_as_the_loss():
    bad = passed(plain, infinite).bad
    assert bad is not None
    assert (bad.phase, bad.name) == ("loss", "log")


def test_the_users_model_is_as_it_was():
    net = Net(plain)
    ids = torch.arange(20).view(4, 5) % 9
    before = {name: p.clone() for name, p in net.named_parameters()}
    training_pass(Probe(adapt(Subject(net, (ids,), targets=ids, loss=lambda o, y: o.sum()))))
    assert all(p.grad is None and torch.equal(p, before[name]) for name, p in net.named_parameters())


def overflowing(net: Net, h: Tensor) -> Tensor:
    h = torch.exp(net.layer(h) * 1e4)
    return h - h


def test_the_infinity_behind_a_nan_is_named_too():
    bad = passed(overflowing).bad
    assert bad is not None and bad.place is not None and bad.before is not None
    assert (bad.place.line, bad.before.line) == (line_of(overflowing, "h - h"), line_of(overflowing, "exp"))
    assert not bad.is_filled
