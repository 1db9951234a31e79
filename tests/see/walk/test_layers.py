"""Sub-layers of a pass: also the feed-forward layer of a single block, and none that is a head."""

from __future__ import annotations

from torch import nn

from headwise.see.walk.layers import inner_products, output_projection
from see.walk.odd_models import Heads, Language, Scan, Squeezed
from see.walk.walk_models import Block, Llama, ids, numbers, seen


def test_a_single_block_has_both_its_sub_layers_and_a_head_is_none() -> None:
    model = nn.Sequential(Block(), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
    _, layers, _, _ = seen(model, numbers(2, 10, 16))
    assert [layer.kind for layer in layers.all] == ["attention", "feed-forward"]
    assert all(layer.sum is not None for layer in layers.all)
    output = output_projection(layers.all[0])
    assert output is not None and output.module == "0.attention.out"


def test_a_gated_layer_has_two_products_that_widen() -> None:
    _, layers, _, _ = seen(Llama(), ids())
    assert [layer.kind for layer in layers.all] == ["attention", "feed-forward"] * 2
    shapes = [[op.out.shape[-1] for op in inner_products(layer)] for layer in layers.all[1::2]]
    assert shapes == [[24, 24, 16]] * 2


def test_every_operation_of_a_norm_leads_to_it() -> None:
    _, layers, _, _ = seen(Llama(), ids())
    assert len(layers.norms) == 5 and set(layers.norm_ops.values()) == set(layers.norms)
    assert {op.name for op in layers.norm_ops} == {"pow", "mean", "add_", "rsqrt", "mul"}


def test_an_attention_that_is_not_recognised_is_no_feed_forward_layer() -> None:
    for model, given in ((Language(Heads()), ids(2, 1)), (Language(Heads(4, 4), 4), ids(4, 4))):
        _, layers, _, _ = seen(model, given)
        ups = [layer.up.module for layer in layers.all if layer.kind == "feed-forward" and layer.up]
        assert ups == ["inner.0"]


def test_a_scan_along_the_positions_and_a_gate_on_channels_are_no_feed_forward_layers() -> None:
    assert seen(Scan(), ids())[1].all == []
    assert seen(Squeezed(), numbers(2, 3, 12, 20))[1].all == []
