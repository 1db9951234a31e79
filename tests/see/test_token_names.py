"""Positions bear the user's names, else their ids, else the places of the patches, else numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ConfigError
from headwise.see.attention import attention
from headwise.see.token_names import Names

IDS = torch.tensor([[3, 7, 1], [5, 2, 8]])


class Reader(nn.Module):
    def __init__(self, extra: int = 0) -> None:
        super().__init__()
        self.table, self.project = nn.Embedding(9, 8), nn.Linear(8, 24)
        self.front = nn.Parameter(torch.randn(extra, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = x if x.is_floating_point() else self.table(x)
        x = torch.cat((self.front.expand(len(x), -1, -1), x), 1)
        q, k, v = self.project(x).chunk(3, -1)
        return (q @ k.mT).softmax(-1) @ v


class Pictures(nn.Module):
    """Patches by a strided convolution, or by moving pixels; a class token in front if asked for."""

    def __init__(self, by_convolution: bool, has_class: bool) -> None:
        super().__init__()
        self.cut = nn.Conv2d(1, 8, 2, 2) if by_convolution else None
        self.read, self.flat = Reader(int(has_class)), nn.Linear(4, 8)

    def forward(self, images: Tensor) -> Tensor:
        if self.cut is not None:
            return self.read(self.cut(images).flatten(2).mT)
        patches = images.unfold(2, 2, 2).unfold(3, 2, 2).flatten(2, 3).flatten(3)[:, 0]
        return self.read(self.flat(patches))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.table(source), self.table(target)
        return self.layer(y, x, x)[0]


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (None, ("5", "2", "8")),
        (["a", "b", "<i>"], ("a", "b", "<i>")),
        (lambda ids: [f"<{n}>" for n in ids], ("<5>", "<2>", "<8>")),
    ],
)
def test_names_of_ids(given: Names | None, names: tuple[str, ...]) -> None:
    stack = attention(Reader(), IDS, row=1, tokens=given).stacks[0]
    assert stack.queries == stack.keys == names


def test_numbers_where_nothing_names_the_tokens() -> None:
    assert attention(Reader(), torch.randn(2, 3, 8)).stacks[0].keys == ("0", "1", "2")
    # a token more than ids: which of them are they?
    assert attention(Reader(1), IDS).stacks[0].keys == ("0", "1", "2", "3")
    assert attention(Reader(1), IDS, tokens=list("xabc")).stacks[0].keys == tuple("xabc")


@pytest.mark.parametrize("by_convolution", [True, False])
@pytest.mark.parametrize("has_class", [True, False])
def test_patches_are_named_by_row_and_column(by_convolution: bool, has_class: bool) -> None:
    keys = attention(Pictures(by_convolution, has_class), torch.randn(2, 1, 4, 6)).stacks[0].keys
    cells = ("r1 c1", "r1 c2", "r1 c3", "r2 c1", "r2 c2", "r2 c3")
    assert keys == (("class", *cells) if has_class else cells)


def test_a_part_of_the_patches_is_only_numbered() -> None:
    class Some(Pictures):
        def forward(self, images: Tensor) -> Tensor:
            assert self.cut is not None
            return self.read(self.cut(images).flatten(2).mT[:, [5, 0]])

    assert attention(Some(True, False), torch.randn(1, 1, 4, 6)).stacks[0].keys == ("0", "1")


def test_source_and_target_have_names_of_their_own() -> None:
    pair = IDS, IDS[:, :2]
    (stack,) = attention(Pair(), pair, tokens=["x", "y"], source_tokens=["a", "b", "c"]).stacks
    assert (stack.queries, stack.keys) == (("x", "y"), ("a", "b", "c"))
    (stack,) = attention(Pair(), pair, tokens=lambda ids: [f"<{n}>" for n in ids]).stacks
    assert (stack.queries, stack.keys) == (("<3>", "<7>"), ("<3>", "<7>", "<1>"))
    (stack,) = attention(Pair(), pair, tokens=["x", "y"]).stacks
    assert (stack.queries, stack.keys) == (("x", "y"), ("3", "7", "1"))


def test_names_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^tokens must name each position of the row: got 2 names for 3 pos"
    ):
        attention(Reader(), IDS, tokens=["a", "b"])
    with pytest.raises(
        ConfigError, match=r"^source_tokens must name each position of the row: got 2 names for 3"
    ):
        attention(Pair(), (IDS, IDS[:, :2]), source_tokens=["a", "b"])
    with pytest.raises(ConfigError, match=r"^source_tokens name a source, and this model reads one input"):
        attention(Reader(), IDS, source_tokens=["a", "b", "c"])
    with pytest.raises(
        ConfigError, match="tokens must give a name for each id: got 5 names for 3 ids; give a"
    ):
        attention(Reader(), IDS, tokens=lambda ids: "abcde")
