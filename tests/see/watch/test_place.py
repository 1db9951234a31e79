"""The line of an operation is the user's, never one of the watch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.doctor.check import Place
from headwise.doctor.trace import recording
from headwise.see.watch import place as module
from headwise.see.watch.place import is_ours, line_of


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.exp()  # HERE


def test_the_line_is_the_models() -> None:
    model = Net()
    x = torch.ones(2)
    with recording(model, [x]) as record:
        model(x)
    at = line_of(record.ops[0])
    assert at is not None and at.file == __file__
    with open(__file__) as file:
        assert file.readlines()[at.line - 1].endswith("# HERE\n")


def test_lines_of_the_watch_are_ours() -> None:
    assert is_ours(Place(module.__file__, 1))
    assert not is_ours(Place(__file__, 1))
