"""Batches with one thing changed: what was meant to change does, nothing else, in whatever form they came."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.doctor.adapt import Stream, adapt
from headwise.doctor.batch import Batch, is_left
from headwise.doctor.subject import Subject

PAD = 0
IDS = torch.tensor([[3, 4, 5, 6, 7, 0], [5, 3, 7, 0, 0, 0], [4, 4, 6, 8, 2, 3], [9, 8, 7, 6, 0, 0]])
REAL = IDS != PAD


class Words(nn.Module):
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        return ids[..., None].float()


class Pair(nn.Module):
    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, causal: Tensor | None = None
    ) -> Tensor:
        return tgt[..., None].float()


MASKS: dict[str, Tensor] = {
    "bool": REAL,
    "pads": ~REAL,
    "ones": REAL.long(),
    "floats": REAL.float(),
    "additive": torch.zeros(4, 6).masked_fill(~REAL, float("-inf")),
    "additive, finite": torch.zeros(4, 6).masked_fill(~REAL, -1e9),
}


def batch_of(inputs: Any, model: nn.Module | None = None, **more: Any) -> Batch:
    return Batch.given(adapt(Subject(model or Words(), inputs, **more)))


def main(batch: Batch) -> Stream:
    stream = batch.adapted.main
    assert stream is not None
    return stream


def hidden(mask: Tensor, name: str) -> Tensor:
    """Which places a mask of this form hides."""
    if "additive" in name:
        return mask < -1e3
    return mask.bool() if name == "pads" else ~mask.bool()


@pytest.fixture(params=["batch-first", "time-major"])
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


def laid(tensor: Tensor, layout: str) -> Tensor:
    return tensor.T.contiguous() if layout == "time-major" else tensor


def test_streams_are_read_batch_first(layout: str) -> None:
    batch = batch_of(laid(IDS, layout), layout=layout)
    assert torch.equal(batch.read(main(batch)), IDS)
    assert (batch.rows, batch.length(main(batch))) == (4, 6)
    again = batch.write(main(batch), IDS + 1, "one more")
    assert torch.equal(again.leaves[0], laid(IDS + 1, layout)) and again.what == "one more"
    assert torch.equal(batch.leaves[0], laid(IDS, layout))  # the old one is as it was


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("form", [tuple, dict])
def test_padding_moves_with_its_mask(name: str, form: type, layout: str) -> None:
    ids, mask = laid(IDS, layout), laid(MASKS[name], layout)
    inputs: Any = (
        {"ids": ids, "padding_mask" if name == "pads" else "mask": mask} if form is dict else (ids, mask)
    )
    more: dict[str, Any] = (
        {} if name != "pads" or form is tuple else {"call": lambda m, ids, padding_mask: m(ids)}
    )
    batch = batch_of(inputs, pad_id=PAD, layout=layout, **more)
    stream = main(batch)
    assert stream.keep_leaf == 1
    pads = batch.padding(stream)
    assert pads is not None and torch.equal(pads, ~REAL)

    filled = batch.filled(vocab=10)
    assert not (filled.read(stream) == PAD).any()
    assert torch.equal(filled.read(stream)[REAL], IDS[REAL])
    assert not hidden(filled.leaves[1], name).any()

    lengths = [6, 2, 4, 1]
    for left in (False, True):
        padded = filled.padded(stream, lengths, left=left)
        want = torch.stack([torch.arange(6) < 6 - n if left else torch.arange(6) >= n for n in lengths])
        assert torch.equal(padded.read(stream) == PAD, want)
        assert torch.equal(hidden(laid(padded.leaves[1], layout), name), want)
        assert padded.leaves[1].dtype == mask.dtype
    assert torch.equal(batch.leaves[1], mask) and torch.equal(batch.leaves[0], ids)


def test_a_mask_alone_can_pad_what_has_no_pad_id() -> None:
    batch = batch_of((torch.randn(4, 6, 3), REAL))
    stream = main(batch)
    assert stream.keep_leaf == 1 and not stream.is_ids
    padded = batch.padded(stream, [6, 2, 4, 1])
    pads = padded.padding(stream)
    assert pads is not None and pads.sum(1).tolist() == [0, 4, 2, 5]
    assert torch.equal(padded.leaves[0], batch.leaves[0])


def test_the_token_that_starts_a_target_is_no_padding_whatever_its_id() -> None:
    tgt = IDS.roll(1, 1)
    tgt[:, 0] = PAD
    batch = batch_of((IDS, tgt), Pair(), pad_id=PAD)
    pads = batch.padding(main(batch))
    assert pads is not None and not pads[:, 0].any() and torch.equal(pads[:, 1:], tgt[:, 1:] == PAD)


def test_change_changes_exactly_what_it_is_told(layout: str) -> None:
    batch = batch_of(laid(IDS, layout), pad_id=PAD, layout=layout)
    where = torch.zeros(4, 6, dtype=torch.bool)
    where[1, 1], where[2, 3:] = True, True
    for step in (1, 2, 3):
        after = batch.change(main(batch), where, vocab=10, step=step).read(main(batch))
        assert torch.equal(after != IDS, where)
        assert set(after[where].tolist()) <= set(IDS.flatten().tolist()) - {
            PAD
        }  # ordinary tokens, none padding
    one = batch.change(main(batch), where, 10, 1).read(main(batch))
    assert not torch.equal(one, batch.change(main(batch), where, 10, 2).read(main(batch)))


def test_change_of_numbers_is_a_change_of_size() -> None:
    values = torch.randn(4, 6, 3)
    batch = batch_of(values)
    where = torch.zeros(4, 6, dtype=torch.bool)
    where[:, 2] = True
    after = batch.change(main(batch), where, None).read(main(batch))
    assert torch.equal((after != values).all(-1), where) and torch.equal((after != values).any(-1), where)
    images = batch_of(torch.randn(4, 3, 8, 8))
    rows = torch.tensor([True, False, False, True])
    after = images.change(main(images), rows, None).read(main(images))
    assert torch.equal((after != images.leaves[0]).flatten(1).any(1), rows)


def test_the_pool_is_of_ordinary_tokens() -> None:
    ids = IDS.clone()
    ids[:, 0] = 1  # every row starts so: no ordinary token
    batch = batch_of(ids, pad_id=PAD)
    assert not {PAD, 1} & set(batch.pool(main(batch), 10).tolist())
    few = batch_of(torch.full((3, 5), 4), pad_id=PAD)
    assert len(few.pool(main(few), 10)) >= 4  # where the batch has hardly any, the vocabulary helps out
    assert PAD not in few.pool(main(few), 10).tolist()
    assert few.pool(main(few), None).tolist() in ([0], [4])


def test_rows_are_taken_of_everything_that_has_rows(layout: str) -> None:
    ids, mask = laid(IDS, layout), laid(REAL, layout)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    batch = batch_of(
        {"ids": ids, "mask": mask, "causal_mask": causal}, layout=layout, call=lambda m, **given: m(ids)
    )
    taken = batch.take_rows([2, 0, 2])
    assert torch.equal(taken.read(main(taken)), IDS[[2, 0, 2]])
    assert torch.equal(laid(taken.leaves[1], layout), REAL[[2, 0, 2]])
    assert torch.equal(taken.leaves[2], causal)


def test_a_square_mask_keeps_its_rows_also_when_there_are_as_many() -> None:
    """Four rows of four tokens, and a causal mask of 4 x 4: its axes are positions."""
    for causal in (
        torch.ones(4, 4, dtype=torch.bool).tril(),
        torch.ones(4, 4, dtype=torch.bool).triu(1),
        torch.zeros(4, 4).masked_fill(torch.ones(4, 4, dtype=torch.bool).triu(1), float("-inf")),
    ):
        batch = batch_of((IDS[:, :4], causal), call=lambda m, ids, attn_mask: m(ids), kind="decoder")
        assert main(batch).keep_leaf is None
        assert torch.equal(batch.take_rows([0, 1]).leaves[1], causal)
        assert batch.cut({"tokens": 3}).leaves[1].shape == (3, 3)


def test_what_is_cut_is_cut_everywhere(layout: str) -> None:
    ids, mask = laid(IDS, layout), laid(REAL, layout)
    causal, four = torch.ones(6, 6, dtype=torch.bool).tril(), torch.zeros(4, 1, 6, 6)
    places = torch.arange(6)
    inputs = {"ids": ids, "mask": mask, "causal_mask": causal, "bias_mask": four, "position_ids": places}
    batch = batch_of(inputs, layout=layout, call=lambda m, **given: m(ids))
    cut = batch.cut({"tokens": 5})
    assert torch.equal(cut.read(main(cut)), IDS[:, :5])
    assert torch.equal(laid(cut.leaves[1], layout), REAL[:, :5])
    assert torch.equal(cut.leaves[2], causal[:5, :5])
    assert cut.leaves[3].shape == (4, 1, 5, 5) and torch.equal(cut.leaves[4], places[:5])


def test_source_and_target_are_cut_apart() -> None:
    src, tgt = IDS, IDS[:, :5]
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    batch = batch_of({"src": src, "tgt": tgt, "src_mask": src != PAD, "causal": causal}, Pair())
    cut = batch.cut({"source": 3, "target": 4})
    assert [tuple(leaf.shape) for leaf in cut.leaves] == [(4, 3), (4, 4), (4, 3), (4, 4)]


def test_no_batch_writes_to_the_users_tensors() -> None:
    ids, mask = IDS.clone(), REAL.clone()
    batch = batch_of((ids, mask), pad_id=PAD)
    stream = main(batch)
    where = torch.ones_like(REAL)
    for other in (
        batch.filled(10),
        batch.padded(stream, [1, 1, 1, 1]),
        batch.change(stream, where, 10),
        batch.take_rows([0]),
        batch.cut({"tokens": 2}),
    ):
        assert other is not batch
    assert torch.equal(ids, IDS) and torch.equal(mask, REAL)


def test_lengths_say_what_the_ids_say(layout: str) -> None:
    counts = REAL.sum(1)
    inputs = {"ids": laid(IDS, layout), "lengths": counts}
    batch = batch_of(inputs, layout=layout, pad_id=PAD, call=lambda m, **given: m(given["ids"]))
    stream = main(batch)
    assert stream.count_leaf == 1
    assert batch.filled(10).leaves[1].tolist() == [6, 6, 6, 6]
    assert batch.padded(stream, [6, 2, 4, 3]).leaves[1].tolist() == [6, 2, 4, 3]
    assert batch.padded(stream, [6, 2, 4, 3], left=True).leaves[1].tolist() == [6, 2, 4, 3]
    assert batch.take_rows([2, 0]).leaves[1].tolist() == [6, 5]
    assert batch.cut({"tokens": 4}).leaves[1].tolist() == [4, 3, 4, 4]
    assert batch.cut({"tokens": 4}, frozenset({"tokens"})).leaves[1].tolist() == [3, 1, 4, 2]
    assert torch.equal(counts, REAL.sum(1)) and batch.padded(stream, [1] * 4).leaves[1].dtype == counts.dtype


def test_lengths_alone_can_pad_what_has_no_pad_id() -> None:
    lengths = torch.tensor([6, 2, 4, 1])
    batch = batch_of({"x": torch.randn(4, 6, 3), "lengths": lengths}, call=lambda m, **given: m(given["x"]))
    pads = batch.padding(main(batch))
    assert pads is not None and pads.sum(1).tolist() == [0, 4, 2, 5] and not pads[:, 0].any()
    assert batch.filled(None).leaves[1].tolist() == [6, 6, 6, 6]


def test_as_many_rows_as_positions_leave_their_labels_alone() -> None:
    square = {"ids": IDS[:, :4].clamp(min=1), "labels": torch.tensor([0, 1, 2, 1])}
    batch = batch_of(square, call=lambda m, **given: m(given["ids"]))
    assert batch.cut({"tokens": 3}).leaves[1].tolist() == [0, 1, 2, 1]


def test_the_last_positions_are_taken_of_everything(layout: str) -> None:
    ids, mask = laid(IDS, layout), laid(REAL, layout)
    batch = batch_of(
        {"ids": ids, "mask": mask, "position_ids": torch.arange(6)},
        layout=layout,
        call=lambda m, **g: m(g["ids"]),
    )
    cut = batch.cut({"tokens": 4}, frozenset({"tokens"}))
    assert torch.equal(cut.read(main(cut)), IDS[:, 2:])
    assert torch.equal(laid(cut.leaves[1], layout), REAL[:, 2:]) and cut.leaves[2].tolist() == [2, 3, 4, 5]


def test_only_rows_that_begin_with_padding_are_padded_on_the_left() -> None:
    assert is_left(REAL.flip(1).logical_not()) and not is_left(~REAL)
    assert not is_left(torch.zeros(3, 5, dtype=torch.bool)) and not is_left(
        torch.ones(3, 5, dtype=torch.bool)
    )
