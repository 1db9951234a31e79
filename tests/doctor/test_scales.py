"""The factor of the scores is measured wherever it stands, and smaller weights make up for it."""

from __future__ import annotations

import math

import pytest
import torch

from doctor.head_model import DH, Model, probe_of
from headwise.doctor.heads import (
    heads,
)
from headwise.doctor.scales import gauge, spread


@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("scale", [DH**-0.5, 1.0, 0.3])
def test_the_factor_is_measured_through_rotations(scale: float, turn: bool) -> None:
    probe = probe_of(Model(scale=scale, turn=turn))
    (each,) = heads(probe)
    found = gauge(probe, each)
    assert found is not None and math.isclose(found.factor, scale, rel_tol=1e-3)


def test_smaller_weights_make_up_for_a_missing_factor() -> None:
    plain, small = Model(scale=1.0), Model(scale=1.0)
    with torch.no_grad():
        small.parts["q"].weight *= DH**-0.5
    reach = [spread(probe, heads(probe)[0]) for probe in (probe_of(plain), probe_of(small))]
    assert reach[0] is not None and reach[1] is not None
    assert reach[0] > DH**-0.25 > reach[1]
