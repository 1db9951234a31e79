"""The residual path: sub-layers, their sums and their norms, in designs that order them differently."""

from __future__ import annotations

import pytest

from doctor.block_model import DEPTH, found_in
from headwise.doctor.flow import weight_name


@pytest.mark.parametrize("order", ["pre", "post", "sandwich", "parallel", "joined", "rezero", "normed"])
def test_each_block_has_an_attention_and_a_feed_forward_layer_that_meet_the_stream(order: str) -> None:
    found = found_in(order)
    kinds = [layer.kind for layer in found.layers]
    assert kinds.count("attention") == kinds.count("feed-forward") == DEPTH
    assert found.depth("main") == DEPTH
    for layer in found.layers:
        assert layer.sum is not None and layer.skip is not None and found.goes_round(layer)
    downs = {weight_name(layer.down) for layer in found.layers if layer.down is not None}
    assert downs == {f"blocks.{i}.down.weight" for i in range(DEPTH)}


def test_norms_are_told_by_where_they_stand() -> None:
    pre, post, sandwich, rezero = (found_in(order) for order in ("pre", "post", "sandwich", "rezero"))
    assert all(layer.before is not None and not pre.is_normed_after(layer) for layer in pre.layers)
    assert all(post.is_normed_after(layer) for layer in post.layers)
    assert all(layer.inner and layer.before is None for layer in sandwich.layers)
    assert all(layer.is_scaled and not layer.inner for layer in rezero.layers)
    assert not any(pre.reads_raw(layer) for layer in pre.layers)
    assert all(rezero.reads_raw(layer) for layer in rezero.layers)


def test_branches_side_by_side_are_known() -> None:
    parallel = found_in("parallel")
    assert all(len(parallel.side_by_side(layer)) == 2 for layer in parallel.layers)
    pre = found_in("pre")
    assert all(len(pre.side_by_side(layer)) == 1 for layer in pre.layers)


def test_a_sub_layer_that_replaces_the_stream_has_no_way_round() -> None:
    found = found_in("cut")
    for layer in found.layers:
        assert found.goes_round(layer) == (layer.kind == "attention")
        assert (layer.sum is None) == (layer.kind == "feed-forward")
