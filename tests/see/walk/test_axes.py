"""Axes are named by what they are in the graph; equal sizes confuse nothing, the unknown is its size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headwise.see.walk.axes import LEGEND, ORDER
from headwise.see.walk.walk import trace
from see.walk.walk_models import Attention, Block, Llama, ids, numbers, step


def test_names_hold_though_every_size_is_four() -> None:
    block = Block(16, heads=4)
    walk = trace(block, numbers(4, 4, 16))
    assert step(walk, "split into heads").axes == ("B", "H", "T", "Dh")
    assert step(walk, "scores").axes == ("B", "H", "T", "T") and step(walk, "scores").shape == (4, 4, 4, 4)
    assert step(walk, "merge heads").axes == ("B", "T", "D")


def test_every_name_has_a_meaning_and_they_come_in_order() -> None:
    assert set(ORDER) == set(LEGEND)
    sizes = trace(Llama(), ids()).sizes
    assert list(sizes) == [name for name in ORDER if name in sizes]


def test_attention_over_the_batch_is_seen_in_its_axes() -> None:
    class Wrong(nn.Module):
        """Tensors with the batch first, given to a layer that takes time first."""

        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.attention(x, x, x, need_weights=False)[0]

    walk = trace(Wrong(), numbers(3, 7, 16))
    assert step(walk, "scores").shape == (7, 2, 3, 3) and step(walk, "scores").axes[2:] == ("B", "B")


def test_heads_cut_without_a_transpose_are_not_called_positions() -> None:
    class Scrambled(Attention):
        def split(self, x: Tensor) -> Tensor:
            return x.view(x.shape[0], self.heads, x.shape[1], -1)

    block = Block()
    block.attention = Scrambled()
    right, wrong = trace(Block(), numbers(2, 10, 16)), trace(block, numbers(2, 10, 16))
    axes = [step(w, "split into heads").axes for w in (right, wrong)]
    assert axes == [("B", "H", "T", "Dh"), ("B", "H?", "T?", "Dh?")]
    assert "question mark" in wrong.to_text() and "question mark" in wrong.to_html()
    assert "question mark" not in right.to_text() and "question mark" not in right.to_html()


def test_heads_merged_without_a_transpose_are_marked() -> None:
    class Viewed(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
            return self.out(((q @ k.mT * 0.5).softmax(-1) @ v).view(x.shape))

    block = Block()
    block.attention = Viewed()
    assert step(trace(block, numbers(2, 10, 16)), "merge heads").axes[:2] == ("B", "T?")


def test_a_mask_given_as_an_input_and_time_first_are_named() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.block = nn.Embedding(23, 16), Block()

        def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
            return self.block(self.table(ids) * attention_mask.unsqueeze(-1))

    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, 5:] = 0
    walk = trace(Model(), {"ids": ids(), "attention_mask": mask})
    assert [s.axes for s in walk.steps if s.kind == "input"] == [("B", "T"), ("B", "T")]


def test_the_last_axis_of_a_classifier_is_its_classes() -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.block, self.head = nn.Embedding(23, 16), Block(), nn.Linear(16, 5)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.block(self.table(ids)).mean(1))

    walk = trace(Classifier(), ids())
    assert walk.steps[-1].axes == ("B", "C") and walk.sizes["C"] == 5
