"""Laws of padding: what moves with a pad's content, and what each attention makes of the pads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from doctor.padding_model import HEADS, PAD, Reader, keys, probe_of
from headwise.doctor.padded import padded


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


def test_a_pooled_answer_moves_with_pads_that_no_attention_sees() -> None:
    pass_ = padded(probe_of(Reader(keys, pool=True)))
    assert [sight.form for sight in pass_.sights] == ["hidden"] and pass_.reaches("tokens") > 0
