"""Only the bounds of a block tell a residual that is taken after the norm from post-norm."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from doctor.block_model import VOCAB, Model, found_in
from headwise.doctor.adapt import adapt
from headwise.doctor.blocks import blocks
from headwise.doctor.bounds import pre_norm_block
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject


@pytest.mark.parametrize(("order", "expected"), [("normed", True), ("post", False), ("pre", False)])
def test_only_the_bounds_of_a_block_tell_a_normed_residual_from_post_norm(order: str, expected: bool) -> None:
    found = found_in(order)
    first = found.attentions()[1]
    assert first.skip is not None
    norm = found.norm_behind(first.skip)
    block = pre_norm_block(found, first, norm) if norm is not None else None
    assert (block == "blocks.1") == expected
    assert (block is None) != expected


class Loop(Model):
    """One function runs the parts of all blocks: no call of a block tells where one begins."""

    def __init__(self, order: str) -> None:
        super().__init__(order)
        self.order = order

    def forward(self, ids: Tensor) -> Tensor:
        x = self.narrow(self.stem(self.words(ids)))
        for block in self.blocks:
            if self.order == "normed":
                x = block.one(x)
                x = x + block.attention(x)
                x = block.two(x)
                x = x + block.feed(x)
            else:
                x = block.one(x + block.attention(x))
                x = block.two(x + block.feed(x))
        return self.head(x)


@pytest.mark.parametrize(("order", "expected"), [("normed", "blocks.1"), ("post", None)])
def test_without_a_call_the_owner_of_the_weights_tells(order: str, expected: str | None) -> None:
    torch.manual_seed(0)
    found = blocks(Probe(adapt(Subject(Loop(order), (torch.randint(0, VOCAB, (5, 14)),), kind="decoder"))))
    first = found.attentions()[1]
    assert first.skip is not None
    norm = found.norm_behind(first.skip)
    assert norm is not None and pre_norm_block(found, first, norm) == expected
