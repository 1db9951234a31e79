"""The line that cuts the gradient off, however it does so, with the parameters that lie behind it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from doctor.pass_model import Net, line_of, passed, plain


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
