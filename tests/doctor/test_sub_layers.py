"""Sub-layers are told by their products: one attention however its heads run, pairs that feed forward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from doctor.block_model import DEPTH, found_in
from headwise.doctor.adapt import adapt
from headwise.doctor.blocks import blocks
from headwise.doctor.flow import weight_name
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

WIDTH, HEADS = 24, 3


class Apart(nn.Module):
    """Heads of their own, one after the other in the code and side by side in the graph."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = (
            nn.Embedding(19, WIDTH),
            nn.Sequential(nn.Linear(WIDTH, 40), nn.Linear(40, 19)),
        )
        self.heads = nn.ModuleList([nn.Linear(WIDTH, 3 * WIDTH // HEADS) for _ in range(2 * HEADS)])
        self.out = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for block, out in enumerate(self.out):
            mixed = []
            for head in list(self.heads)[block * HEADS : (block + 1) * HEADS]:
                q, k, v = head(x).chunk(3, -1)
                mixed.append((q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v)
            x = x + out(torch.cat(mixed, -1))
        return self.head(x)


def test_heads_that_run_apart_are_one_attention_and_a_head_is_no_feed_forward_layer() -> None:
    found = blocks(Probe(adapt(Subject(Apart(), (torch.arange(44).view(4, 11) % 19,), kind="encoder"))))
    assert [(layer.kind, len(layer.sites)) for layer in found.layers] == [("attention", HEADS)] * 2
    assert [layer.called for layer in found.layers] == ["the attention"] * 2


@pytest.mark.parametrize("order", ["pre", "post", "parallel"])
def test_a_feed_forward_layer_is_a_pair_of_products_with_weights(order: str) -> None:
    layers = [layer for layer in found_in(order).layers if layer.kind == "feed-forward"]
    pairs = [tuple(weight_name(op) for op in (layer.up, layer.down) if op is not None) for layer in layers]
    assert pairs == [(f"blocks.{i}.up.weight", f"blocks.{i}.down.weight") for i in range(DEPTH)]
    assert all(layer.last is layer.down for layer in layers)
