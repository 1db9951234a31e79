"""Axes are named by what they are in the graph; equal sizes confuse nothing, the unknown is its size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.see.walk.axes import LEGEND, ORDER
from headwise.see.walk.walk import trace
from see.walk.odd_models import (
    Experts,
    Folded,
    Heads,
    Language,
    Listener,
    Mixer,
    Shared,
    Squeezed,
    TimeFirst,
    Towers,
    Windows,
)
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


def test_heads_that_share_keys_without_copies_are_counted_whole() -> None:
    walk = trace(Language(Shared()), ids(2, 7))
    assert (walk.sizes["H"], walk.sizes["Hk"], walk.sizes["Dh"]) == (4, 2, 4)
    assert step(walk, "scores").axes == ("B", "Hk", "2", "T", "T")
    assert step(walk, "mask").operation == "causal: hides 21 of 49 pairs"


@pytest.mark.parametrize("attention", [Folded, Heads])
def test_one_row_names_what_two_rows_name(attention: type[nn.Module]) -> None:
    one, two = (trace(Language(attention()), ids(rows, 7)) for rows in (1, 2))
    assert one.sizes == {**two.sizes, "B": 1} and one.sizes["H"] == 4
    assert step(one, "scores").axes == step(two, "scores").axes


def test_windows_are_no_heads() -> None:
    walk = trace(Windows(), numbers(2, 3, 32, 32))
    assert walk.sizes == {"B": 2, "D": 16, "H": 4, "Dh": 4, "C": 10}
    assert step(walk, "scores").axes == ("8", "H", "16", "16")


def test_source_positions_are_those_that_the_target_looks_at() -> None:
    walk = trace(Listener(), (numbers(2, 8, 40), ids(2, 5)))
    assert (walk.sizes["S"], walk.sizes["T"]) == (20, 5)
    assert [each.axes for each in walk.steps if each.kind == "input"] == [("B", "8", "40"), ("B", "T")]
    cross = [each.axes for each in walk.steps if each.name == "scores"][-1]
    assert cross == ("B", "H", "T", "S")


def test_two_towers_have_no_source() -> None:
    walk = trace(Towers(), {"ids": ids(2, 7), "pixels": numbers(2, 3, 12, 12)})
    assert walk.sizes["T"] == 7 and not {"S", "C"} & set(walk.sizes)
    text, image = (each for each in walk.steps if each.name == "scores")
    assert text.axes == ("B", "H", "T", "T") and image.axes == ("B", "H", "9", "9")


def test_time_comes_first_where_only_so_the_rows_are_as_many() -> None:
    walk = trace(TimeFirst(), (ids(9, 2), ids(7, 2)))
    assert (walk.sizes["B"], walk.sizes["T"], walk.sizes["S"]) == (2, 7, 9)
    assert [each.axes for each in walk.steps if each.name == "scores"] == [
        ("B", "H", "S", "S"), ("B", "H", "T", "T"), ("B", "H", "T", "S"),
    ]  # fmt: skip


def test_a_letter_is_one_size() -> None:
    walk = trace(Mixer(), numbers(2, 3, 12, 12))
    assert walk.sizes == {"B": 2, "D": 16}
    ups = [each.axes for each in walk.steps if each.kind == "up"]
    assert ups == [("B", "D", "36"), ("B", "9", "64")]


def test_the_rows_that_an_expert_got_are_no_positions() -> None:
    walk = trace(Language(Experts()), ids(2, 7))
    assert next(each.axes for each in walk.steps if each.shape == (7, 16)) == ("7", "16")


class Last(nn.Module):
    """What a recurrent layer gives, and what is made of it."""

    def __init__(self, inner: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.inner, self.head = inner, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0])


@pytest.mark.parametrize(
    ("model", "shape", "sizes", "first"),
    [
        (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), (5, 8), {"B": 5, "C": 3}, "B 8"),
        (nn.Linear(4, 2), (4,), {}, "4"),
        (nn.Conv1d(5, 3, 3), (4, 5, 9), {"B": 4}, "B 5 9"),
        (nn.ConvTranspose2d(16, 3, 4, 2), (2, 16, 6, 10), {"B": 2}, ""),
        (Last(nn.GRU(5, 24, batch_first=True), nn.Linear(24, 3)), (2, 7, 5), {"B": 2}, "B 7 5"),
        (Last(nn.LSTM(5, 24, batch_first=True), nn.Identity()), (2, 7, 5), {"B": 2}, "B 7 5"),
        (Squeezed(), (2, 3, 12, 20), {"B": 2, "C": 10}, ""),
    ],
)
def test_what_is_no_sequence_has_its_numbers(
    model: nn.Module, shape: tuple[int, ...], sizes: dict[str, int], first: str
) -> None:
    walk = trace(model, numbers(*shape))
    assert walk.sizes == sizes
    assert not first or " ".join(next(iter(walk.steps)).axes) == first
    assert not {"T", "D", "F", "V"} & {name for each in walk.steps for name in each.axes}


def test_what_fails_has_the_names_of_the_graph_and_no_others() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.rows = Language(nn.Identity()), nn.Parameter(torch.zeros(7, 2))

        def forward(self, ids: Tensor) -> Tensor:
            return self.block.table(ids) @ self.rows

    walk = trace(Table(), ids(2, 7))
    assert walk.failed is not None
    assert all("time" not in each and "batch" not in each for each in walk.failed.operands[1:])
    assert walk.failed.operands[1].endswith("is [7, 2]")
