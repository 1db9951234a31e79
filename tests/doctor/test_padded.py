"""The padded rows that are tried: on the user's side, of the user's kind, or none."""

from __future__ import annotations

import pytest
import torch

from doctor.padding_model import PAD, Reader, batch, causal, keys, probe_of
from headwise.doctor.adapt import adapt
from headwise.doctor.check import NotApplicable
from headwise.doctor.padded import left_padded, padded
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject


def test_a_causal_decoder_has_nothing_to_hide_of_pads_on_the_right_and_all_of_those_on_the_left() -> None:
    right = padded(probe_of(Reader(causal), "decoder"))
    assert [sight.form for sight in right.sights] == ["nothing"] and right.reaches("tokens") == 0
    left = padded(probe_of(Reader(causal), "decoder", batch(left=True)))
    assert left.left and [sight.form for sight in left.sights] == ["seen"] and left.reaches("tokens") > 0
    assert left_padded(probe_of(Reader(causal), "decoder", batch(left=True))) is None


def test_without_a_pad_id_there_is_nothing_to_pad() -> None:
    with pytest.raises(NotApplicable):
        padded(Probe(adapt(Subject(Reader(keys), (batch(),), kind="encoder"))))


def test_a_batch_without_pads_is_given_some_and_every_row_keeps_two_tokens() -> None:
    probe = probe_of(Reader(keys), ids=torch.randint(1, 23, (4, 11)))
    pass_ = padded(probe)
    pads = pass_.pads["tokens"]
    assert padded(probe) is pass_ and not pass_.left
    assert (
        bool(pads.any())
        and bool((~pads).sum(1).ge(2).all())
        and not bool((~pads[:, 1:] & pads[:, :-1]).any())
    )
    assert torch.equal(pass_.run.batch.leaves[0] == PAD, pads)


def test_rows_padded_on_the_right_are_tried_on_the_left_too() -> None:
    probe = probe_of(Reader(keys))
    left = left_padded(probe)
    assert left is not None and left.left and not padded(probe).left
    assert torch.equal(left.pads["tokens"], padded(probe).pads["tokens"].flip(1))
