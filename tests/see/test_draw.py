"""`headwise.draw` has every drawing under one short name."""

from __future__ import annotations

import torch

import headwise
from headwise.see import draw


def test_the_module_is_public_and_each_name_in_it_draws() -> None:
    assert headwise.draw is draw
    keep = torch.ones(3, 3).tril().bool()
    table = torch.randn(6, 4)
    made = {
        "mask": draw.mask(keep),
        "positions": draw.positions(table),
        "similarity": draw.similarity(table),
        "curves": draw.curves([{"step": 1, "loss": 2.0}]),
    }
    assert {*made, "Drawing"} == set(draw.__all__)
    for drawing in made.values():
        assert isinstance(drawing, headwise.Drawing) and drawing.caption
        for axes in drawing.figure.axes:
            assert axes.get_xlabel() or axes.get_ylabel()
