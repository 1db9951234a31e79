"""The layers of what is trained, known anew when that changes."""

from __future__ import annotations

import torch
from torch import nn

from headwise.see.watch.trained import Trained


def test_weights_that_are_trained_later() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    trained = Trained(model)
    assert trained.names == ["1"] and not trained.know()
    model[0].requires_grad_(True)
    assert trained.know() and trained.names == ["0", "1"]


def test_lazy_weights_have_a_size_after_a_pass() -> None:
    model = nn.Sequential(nn.LazyLinear(2))
    trained = Trained(model)
    assert not trained.is_known
    model(torch.rand(1, 3))
    assert trained.know() and trained.is_known and trained.names == ["0"]
