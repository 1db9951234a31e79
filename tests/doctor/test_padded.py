"""The padded rows that are tried: on the user's side, of the user's kind, or none."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

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


class Pair(nn.Module):
    """Source and target, each embedded and read; no attention is needed to see who is padded where."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(23, 8), nn.Linear(8, 5)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.out(self.embed(tgt) + self.embed(src).mean(1, keepdim=True))


def test_each_stream_is_padded_on_its_own_side() -> None:
    src, tgt = batch(left=True), batch()[:, :9]
    probe = Probe(adapt(Subject(Pair(), (src, tgt), pad_id=PAD)))
    pass_ = padded(probe)
    assert pass_.sides == {"source"} and not pass_.left
    source, target = pass_.pads["source"], pass_.pads["target"]
    assert bool(source[:, 0].any()) and not bool(source[:, -1].any())
    assert bool(target[:, -1].any()) and not bool(target[:, 0].any())


class Counted(nn.Module):
    """Hides what lies beyond each row's length; `extra` is how many places too many it reads."""

    def __init__(self, extra: int = 0) -> None:
        super().__init__()
        self.reader, self.extra = Reader(self.beyond), extra

    def beyond(self, ids: Tensor) -> Tensor:
        return (torch.arange(ids.shape[1]) < self.counts[:, None] + self.extra)[:, None, None, :]

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        self.counts = lengths
        return self.reader(ids)


@pytest.mark.parametrize(("extra", "form"), [(0, "hidden"), (1, "seen"), (99, "seen")])
def test_lengths_are_counted_again_for_the_rows_that_are_tried(extra: int, form: str) -> None:
    ids = batch()
    probe = Probe(adapt(Subject(Counted(extra), (ids, (ids != PAD).sum(1)), kind="encoder", pad_id=PAD)))
    pass_ = padded(probe)
    assert pass_.run is not probe.given and [sight.form for sight in pass_.sights] == [form]
    assert torch.equal(pass_.run.batch.leaves[1], (~pass_.pads["tokens"]).sum(1))
    assert (pass_.reaches("tokens") > 0) == (extra > 0)
    assert left_padded(probe) is None  # counts are read from the left
