"""Every need can be asked of every probe, and says what is missing in words."""

from __future__ import annotations

import torch
from torch import nn

from doctor.probe_model import Model, ids, probe_of
from headwise.doctor.check import checks
from headwise.doctor.needs import KNOWN


def test_every_need_can_be_asked_of_every_probe() -> None:
    bare, full = probe_of(Model()), probe_of(
        Model(), ids(), kind="decoder", pad_id=0, targets=ids(), loss=lambda out, goal: out.mean(),
        optimizer=torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1), generate=lambda m, p, n: p,
        train_step=lambda m, o, b: None,
    )  # fmt: skip
    missing = {need for need in KNOWN if bare.lacks(frozenset({need})) is not None}
    assert missing == {
        "failure", "kind", "causal", "decoder", "encoder", "encoder-decoder", "encoder-side", "sites",
        "targets", "loss", "optimizer", "generate", "train_step", "padding",
    }  # fmt: skip
    missing = {need for need in KNOWN if full.lacks(frozenset({need})) is not None}
    assert missing == {"failure", "encoder", "encoder-decoder", "encoder-side", "sites"}
    assert full.lacks(frozenset({"encoder"})) == "it is for encoders, and this is decoder"
    assert "give --kind" in (bare.lacks(frozenset({"causal"})) or "")
    assert full.lacks(frozenset({"tokens", "loss", "rows"})) is None


def test_what_fails_is_told_before_all_that_is_missing() -> None:
    broken = probe_of(Model(length=7), ids(6, 20))
    assert broken.lacks(frozenset({"loss", "causal"})) == "the model does not run on its batch"
    assert broken.lacks(frozenset({"failure", "loss"})) == "no loss with targets was given"
    assert probe_of(Model()).lacks(frozenset({"failure", "causal"})) == "the model runs on its batch"


def test_every_need_of_a_check_is_known() -> None:
    assert {need for each in checks() for need in each.needs} <= KNOWN
