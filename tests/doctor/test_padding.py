"""Laws of padding: what moves with a pad's content, and what each attention makes of the pads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import adapt
from headwise.doctor.check import NotApplicable
from headwise.doctor.padded import left_padded, padded
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Kind, Subject
from headwise.doctor.unused_masks import marks, watch

PAD, WIDTH, HEADS = 0, 8, 2


class Reader(nn.Module):
    """One attention whose mask is a function of the ids, [B, 1, T, T] or None; pools where asked."""

    def __init__(
        self, visible: Callable[[Tensor], Tensor | None], pool: bool = False, time_first: bool = False
    ) -> None:
        super().__init__()
        self.visible, self.pool, self.time_first = visible, pool, time_first
        self.embed = nn.Embedding(23, WIDTH, padding_idx=PAD)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids.T if self.time_first else ids)
        x = x.transpose(0, 1) if self.time_first else x
        rows, length, _ = x.shape
        q, k, v = (t.view(rows, length, HEADS, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores, keep = q @ k.mT, self.visible(ids)
        scores = scores if keep is None else scores.masked_fill(~keep, -1e9)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, WIDTH)
        return self.out(y.mean(1) if self.pool else y)


def keys(ids: Tensor) -> Tensor:
    return (ids != PAD)[:, None, None, :]


def causal(ids: Tensor) -> Tensor:
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()


def batch(left: bool = False) -> Tensor:
    torch.manual_seed(0)
    ids = torch.randint(1, 23, (4, 11))
    for row, length in enumerate([11, 6, 9, 4]):
        ids[row, slice(0, 11 - length) if left else slice(length, None)] = PAD
    return ids


def probe_of(model: nn.Module, kind: Kind = "encoder", ids: Tensor | None = None) -> Probe:
    given = batch() if ids is None else ids
    return Probe(adapt(Subject(model, (given,), kind=kind, pad_id=PAD)))


@pytest.mark.parametrize(
    ("visible", "form"),
    [
        (keys, "hidden"),
        (lambda ids: None, "seen"),
        (lambda ids: ~keys(ids), "inverted"),
        (lambda ids: (ids != PAD)[:, None, :, None].expand(-1, 1, -1, ids.shape[1]), "wrong-axis"),
        (lambda ids: keys(ids) & keys(ids).mT, "hidden"),
    ],
)
@pytest.mark.parametrize("time_first", [False, True])
def test_each_form_of_a_padding_mask_is_told(
    visible: Callable[[Tensor], Tensor | None], form: str, time_first: bool
) -> None:
    pass_ = padded(probe_of(Reader(visible, time_first=time_first)))
    assert [sight.form for sight in pass_.sights] == [form]
    assert bool(pass_.reaches("tokens")) == (form != "hidden")


def test_the_pads_are_found_among_the_keys() -> None:
    pass_ = padded(probe_of(Reader(keys)))
    (sight,) = pass_.sights
    assert sight.pad_keys is not None and sight.pad_queries is not None
    expected = pass_.pads["tokens"].repeat_interleave(HEADS, 0)
    assert torch.equal(sight.pad_keys, expected) and torch.equal(sight.pad_queries, expected)


def test_a_causal_decoder_has_nothing_to_hide_of_pads_on_the_right_and_all_of_those_on_the_left() -> None:
    right = padded(probe_of(Reader(causal), "decoder"))
    assert [sight.form for sight in right.sights] == ["nothing"] and right.reaches("tokens") == 0
    left = padded(probe_of(Reader(causal), "decoder", batch(left=True)))
    assert left.left and [sight.form for sight in left.sights] == ["seen"] and left.reaches("tokens") > 0
    assert left_padded(probe_of(Reader(causal), "decoder", batch(left=True))) is None


def test_a_pooled_answer_moves_with_pads_that_no_attention_sees() -> None:
    pass_ = padded(probe_of(Reader(keys, pool=True)))
    assert [sight.form for sight in pass_.sights] == ["hidden"] and pass_.reaches("tokens") > 0


def test_without_a_pad_id_there_is_nothing_to_pad() -> None:
    with pytest.raises(NotApplicable):
        padded(Probe(adapt(Subject(Reader(keys), (batch(),), kind="encoder"))))


def test_a_mask_that_nothing_reads_is_unused_and_one_that_is_read_is_not() -> None:
    def fallen(ids: Tensor) -> None:
        (ids == PAD).unsqueeze(1)

    for visible, unused in ((fallen, True), (keys, False)):
        probe = probe_of(Reader(visible))
        pass_ = padded(probe)
        seen = watch(probe, pass_.run.batch)
        assert bool(seen.unused(marks(pass_.pads["tokens"]))) == unused


def test_the_line_that_let_a_mask_fall_is_in_the_function_that_was_given_it() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.reader = Reader(lambda ids: None)

        def inner(self, ids: Tensor, mask: Tensor) -> Tensor:
            return self.reader(ids)

        def forward(self, ids: Tensor) -> Tensor:
            return self.inner(ids, ids != PAD)

    probe = probe_of(Holder())
    pass_ = padded(probe)
    seen = watch(probe, pass_.run.batch)
    masks = seen.unused(marks(pass_.pads["tokens"]))
    place, made = seen.dropped_at(probe, masks, pass_.sites[0])
    assert place is not None and place.function.endswith("Holder.inner")
    assert [each.function.rpartition(".")[2] for each in made] == ["forward"]
