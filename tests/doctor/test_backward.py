"""What backward.py tells of one training pass: the first number that is none, and where it came from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from doctor.pass_model import Net, line_of, passed, plain
from headwise.doctor.adapt import adapt
from headwise.doctor.backward import training_pass
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject


def root_of_zero(net: Net, h: Tensor) -> Tensor:
    h = net.layer(h)
    zero = (h - h).sum(-1, keepdim=True)
    return h + zero.sqrt()


def divided_by_zero(net: Net, h: Tensor) -> Tensor:
    h = net.layer(h)
    return h + (h - h) / (h - h)


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
