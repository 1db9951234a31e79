"""Logits that were flattened are told from others by which of them move, and seen as [B, T, V] again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from doctor.flat_model import VOCAB, Flat, text
from headwise.doctor.adapt import adapt
from headwise.doctor.losses import learned, pairs, share
from headwise.doctor.outputs import keep_slope, on_the_way, scalars, slope, tensors, unflattened
from headwise.doctor.own_loss import with_own_loss
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject
from headwise.doctor.trace import recording


def probe_of(model: Any, *inputs: Tensor, **more: Any) -> Probe:
    return Probe(with_own_loss(adapt(Subject(model, inputs, kind="decoder", **more))))


@pytest.mark.parametrize("mixes_rows", [False, True])
@pytest.mark.parametrize(
    ("form", "order"), [("rows", "batch-first"), ("times", "time-major"), ("cube", None)]
)
def test_the_order_is_measured_also_where_rows_see_one_another(
    form: str, order: str | None, mixes_rows: bool
) -> None:
    probe = probe_of(Flat(form, mixes_rows), *text())
    assert probe.order == order and probe.is_sequence
    whole = Flat("cube", mixes_rows)
    whole.load_state_dict(probe.user_model.state_dict())
    assert torch.allclose(probe.base.logits, whole.double()(probe.batch.leaves[0])[0], atol=1e-12)


def test_what_only_has_as_many_rows_is_left_alone() -> None:
    """[B * T, V] of which no row belongs to a position: pairs of tokens of all rows, say."""

    class Shuffled(Flat):
        def shaped(self, logits: Tensor) -> Tensor:
            return logits.flatten(0, 1)[torch.randperm(45, generator=torch.Generator().manual_seed(1))]

    assert probe_of(Shuffled(), text()[0]).order is None


def test_of_one_row_the_order_is_plain() -> None:
    assert probe_of(Flat(), text(1)[0]).order == "batch-first"


def test_logits_that_are_flattened_time_first_stand_as_the_inputs_do() -> None:
    cube = torch.arange(2 * 3 * 4).view(2, 3, 4)  # [B, T, V]
    rows, times = cube.reshape(6, 4), cube.transpose(0, 1).reshape(6, 4)
    assert torch.equal(unflattened(rows, "batch-first", 2, 3, 0), cube)
    assert torch.equal(unflattened(times, "time-major", 2, 3, 0), cube)
    assert torch.equal(unflattened(rows, "batch-first", 2, 3, 1), cube.transpose(0, 1))
    assert torch.equal(unflattened(times, "time-major", 2, 3, 1), cube.transpose(0, 1))
    assert unflattened(rows, None, 2, 3, 0) is rows and unflattened(rows, "batch-first", 2, 4, 0) is rows


@pytest.mark.parametrize("form", ["rows", "times", "cube"])
@pytest.mark.parametrize("shift", [0, 1])
def test_the_label_of_each_row_is_found_in_every_layout(form: str, shift: int) -> None:
    ids, following = text()
    probe = probe_of(Flat(form), ids, following if shift else ids.clone())
    met = pairs(probe)
    assert torch.equal(met.row, met.label_row) and torch.equal(met.time, met.label_time)
    assert sorted(zip(met.row.tolist(), met.time.tolist(), strict=True)) == [
        (row, time) for row in range(5) for time in range(9)
    ]
    label, read = learned(probe)
    assert share(label, read, shift) == 1.0


def test_a_view_beside_the_one_that_the_loss_reads_leads_to_it() -> None:
    scores = torch.randn(2, 3, VOCAB, requires_grad=True)
    with recording(None, [scores]) as log:
        made = scores * 2
        beside = made.view(6, VOCAB)
        loss = made.flatten(0, 1).logsumexp(-1).sum()
    end, value = log.value_of(loss), log.value_of(beside)
    assert end is not None and value is not None
    found = on_the_way(log, value, end)
    assert found is not None and found in log.ancestors([end])
    keep_slope(beside)
    loss.backward()
    given = slope(beside)
    assert given is not None and torch.allclose(given, beside.detach().softmax(-1))


def test_scalars_are_found_in_whatever_comes_out() -> None:
    loss, scores, count = torch.tensor(3.0), torch.randn(2, 3), torch.tensor(4)
    for output in ((scores, loss, count), {"loss": loss, "n": count}, SimpleNamespace(a=scores, b=loss)):
        assert [each is loss for each in scalars(output)] == [True]
    assert scalars(None) == [] and tensors(3) == []
