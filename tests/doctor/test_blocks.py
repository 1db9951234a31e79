"""The residual path: sub-layers, their sums and their norms, in designs that order them differently."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.doctor.adapt import adapt
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.bounds import pre_norm_block
from headwise.doctor.flow import weight_name
from headwise.doctor.probe import Probe
from headwise.doctor.subject import Subject

WIDTH, HEADS, VOCAB, DEPTH = 24, 2, 29, 2


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (z.unflatten(-1, (HEADS, -1)).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)
        self.one, self.two = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.scale = nn.Parameter(torch.ones(()))

    def feed(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        match self.order:
            case "pre":
                x = x + self.attention(self.one(x))
                return x + self.feed(self.two(x))
            case "post":
                x = self.one(x + self.attention(x))
                return self.two(x + self.feed(x))
            case "sandwich":
                x = x + self.one(self.attention(x))
                return x + self.two(self.feed(x))
            case "parallel":
                return x + self.attention(self.one(x)) + self.feed(self.one(x))
            case "joined":
                return self.attention(self.one(x)) + self.feed(self.one(x)) + x
            case "rezero":
                x = x + self.scale * self.attention(x)
                return x + self.scale * self.feed(x)
            case "normed":
                x = self.one(x)
                x = x + self.attention(x)
                x = self.two(x)
                return x + self.feed(x)
            case "cut":
                x = x + self.attention(self.one(x))
                return self.feed(self.two(x))
            case _:
                raise ValueError(self.order)


class Model(nn.Module):
    """An embedding, blocks, and a head of two linear layers, which is no sub-layer."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.words, self.stem = nn.Embedding(VOCAB, WIDTH), nn.Sequential(nn.Linear(WIDTH, 40), nn.ReLU())
        self.narrow = nn.Linear(40, WIDTH)
        self.blocks = nn.ModuleList([Block(order) for _ in range(DEPTH)])
        self.head = nn.Sequential(nn.Linear(WIDTH, 40), nn.Tanh(), nn.Linear(40, VOCAB))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.narrow(self.stem(self.words(ids)))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@functools.cache
def found_in(order: str) -> Blocks:
    torch.manual_seed(0)
    ids = torch.randint(0, VOCAB, (5, 14))
    return blocks(Probe(adapt(Subject(Model(order), (ids,), kind="decoder"))))


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


@pytest.mark.parametrize(("order", "expected"), [("normed", True), ("post", False), ("pre", False)])
def test_only_the_bounds_of_a_block_tell_a_normed_residual_from_post_norm(order: str, expected: bool) -> None:
    found = found_in(order)
    first = found.attentions()[1]
    assert first.skip is not None
    norm = found.norm_behind(first.skip)
    block = pre_norm_block(found, first, norm) if norm is not None else None
    assert (block == "blocks.1") == expected
    assert (block is None) != expected
