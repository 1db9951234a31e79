"""Queries, keys and values on their way: fused or not, rotated, normalised, shared."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.see.walk.walk import trace
from see.walk.odd_models import Language, Listener, Shared, Turned
from see.walk.walk_models import Attention, Block, Llama, ids, numbers, step


def walked(attention: nn.Module) -> list[tuple[str, int, tuple[int, ...]]]:
    block = Block()
    block.attention = attention  # pyright: ignore
    return [(s.name, s.count, s.shape) for s in trace(block, numbers(2, 10, 16)).steps]


def test_a_fused_projection_cut_before_the_heads_is_told_as_its_thirds() -> None:
    class Fused(Attention):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(16, 48)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (self.split(t) for t in self.qkv(x).chunk(3, -1))
            return self.out(((q @ k.mT * 0.5).softmax(-1) @ v).transpose(1, 2).reshape(x.shape))

    told = walked(Fused())
    assert told[1:3] == [("Q, K, V", 3, (2, 10, 16)), ("split into heads", 3, (2, 4, 10, 4))]


def test_norms_of_queries_and_keys_are_inside_of_the_attention() -> None:
    class Normed(Attention):
        def __init__(self) -> None:
            super().__init__()
            self.n, self.m = nn.LayerNorm(4), nn.LayerNorm(4)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
            q, k = self.n(q), self.m(k)
            return self.out(((q @ k.mT * 0.5).softmax(-1) @ v).transpose(1, 2).reshape(x.shape))

    names = [name for name, _, _ in walked(Normed())]
    assert names[1:6] == ["Q, K, V", "split into heads", "LayerNorm of Q", "LayerNorm of K", "scores"]


def test_a_rotation_keeps_lengths_and_what_does_not_is_no_rotation() -> None:
    class Stretched(Llama):
        def turn(self, x: Tensor) -> Tensor:
            return super().turn(x) * torch.linspace(1, 2, 4)

    assert step(trace(Llama(), ids()), "rotate Q, K").axes == ("B", "H", "T", "Dh")
    assert step(trace(Stretched(), ids()), "change Q, K").operation.startswith("times")


def test_keys_and_values_of_other_shapes_have_a_row_of_their_own() -> None:
    walk = trace(Language(Shared()), ids(2, 7))
    assert step(walk, "split Q").shape == (2, 7, 2, 2, 4)
    keys = step(walk, "split K, V")
    assert (keys.count, keys.shape, keys.axes) == (2, (2, 7, 2, 4), ("B", "T", "Hk", "Dh"))
    heard = [s for s in trace(Listener(), (numbers(2, 8, 40), ids(2, 5))).steps if s.name == "split K, V"]
    assert [each.shape for each in heard] == [(2, 4, 20, 4)]


def test_a_rotation_of_complex_numbers_is_one_step_inside_of_the_attention() -> None:
    walk = trace(Language(Turned()), ids(2, 7))
    assert step(walk, "Q, K, V").count == 3
    turned = step(walk, "rotate Q, K")
    assert (turned.count, turned.shape, turned.axes) == (2, (2, 7, 4, 4), ("B", "T", "H", "Dh"))
