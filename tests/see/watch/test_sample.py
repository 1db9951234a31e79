"""A sample as plain values and back, and as the numbers of a board."""

from __future__ import annotations

import json

import pytest

from headwise.see.watch.measure import AttentionSeen, HeadSeen, NormSeen
from headwise.see.watch.sample import LayerSeen, Sample

HEADS = (HeadSeen(0.9, 0.2, 0.1), HeadSeen(0.1, 0.97, 0.3))
SAMPLE = Sample(
    step=7, loss=2.5, rate=1e-3, gradient=0.5,
    norms={"n": NormSeen(1.0, 0.9, 3.0), "odd": NormSeen(4.0, 1.0, 2.0, is_even=False)},
    attentions={
        "a": AttentionSeen(0.5, 0.6, 0.7, 1.5, HEADS, (0.5, 0.4)),
        "b": AttentionSeen(0.5, 0.6, 0.7, 1.5, (), None),
    },
    layers={"l": LayerSeen(1.0, 0.2, 1e-3), "m": LayerSeen()},
    without=("x",), still=("y",), logged={"accuracy": 0.5},
)  # fmt: skip


def test_it_comes_back_from_json() -> None:
    assert Sample.from_dict(json.loads(json.dumps(SAMPLE.as_dict()))) == SAMPLE


@pytest.mark.parametrize("damage", ["norms", "attentions", "layers"])
def test_anything_else_is_refused(damage: str) -> None:
    values = SAMPLE.as_dict() | {damage: {"n": {"std": "wide"}}}
    with pytest.raises((KeyError, TypeError, ValueError)):
        Sample.from_dict(values)


def test_every_number_has_a_name() -> None:
    scalars = dict(SAMPLE.scalars())
    assert scalars["train/loss"] == 2.5 and scalars["norm_std/odd"] == 4.0
    assert scalars["attention_entropy/a/head_1"] == 0.1
    assert scalars["projection_out_over_in/a"] == pytest.approx(0.8)
    assert scalars["update/l"] == 1e-3 and "update/m" not in scalars
    assert scalars["logged/accuracy"] == 0.5
    assert {"q_std/b", "k_std/b", "v_std/b", "gradient/l", "activation/l"} <= set(scalars)
