"""Positions bear the user's names, else their ids, else the places of the patches, else numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    assert attention(Reader(), torch.randn(2, 3, 8)).stacks[0].keys == ("#0", "#1", "#2")
    # a token more than ids: which of them are they?
    found = attention(Reader(1), IDS)
    assert found.stacks[0].keys == ("#0", "#1", "#2", "#3")
    assert found.notes == ("positions that no id names are numbered, #0 the first",)
    assert attention(Reader(), torch.randn(2, 3, 8)).notes == (), "no ids to be mistaken for"
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

    assert attention(Some(True, False), torch.randn(1, 1, 4, 6)).stacks[0].keys == ("#0", "#1")


class Moving(nn.Module):
    """Looks its ids up as `move` puts them."""

    def __init__(self, move: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.project, self.move = nn.Embedding(9, 8), nn.Linear(8, 24), move

    def forward(self, ids: Tensor) -> Tensor:
        q, k, v = self.project(self.table(self.move(ids))).chunk(3, -1)
        return (q @ k.mT).softmax(-1) @ v


def shifted_right(ids: Tensor) -> Tensor:
    """As T5 makes the decoder's ids of labels."""
    moved = ids.new_zeros(ids.shape)
    moved[:, 1:] = ids[:, :-1].clone()
    moved[:, 0] = 6
    return moved.masked_fill(moved == -100, 0)


@pytest.mark.parametrize(
    ("move", "ids", "names"),
    [
        (lambda ids: ids.flip(1), "182", "cba"),
        (lambda ids: ids[:, torch.tensor([1, 2, 0])], "281", "bca"),
        (lambda ids: torch.cat((ids[:, 2:], ids[:, :2]), 1), "815", "cab"),
        (shifted_right, "652", "6ab"),
    ],
)
def test_names_follow_the_ids_that_are_looked_up(
    move: Callable[[Tensor], Tensor], ids: str, names: str
) -> None:
    model, given = Moving(move), IDS[1:]
    looked_up = tuple(str(int(id)) for id in move(given)[0])
    found = attention(model, given)
    assert found.stacks[0].queries == found.stacks[0].keys == looked_up
    assert any(note.startswith("the model cuts, shifts, turns or permutes its ids") for note in found.notes)
    found = attention(model, given, tokens=list("abc"))
    assert found.stacks[0].keys == tuple(names)
    assert ("an id that the model put in" in "".join(found.notes)) == ("6" in names)
    named = attention(model, given, tokens=lambda ids: [f"<{n}>" for n in ids]).stacks[0].keys
    assert named == tuple(f"<{id}>" for id in looked_up)


@pytest.mark.parametrize(
    ("move", "names"),
    [
        (lambda x: x.flip(1), "cba"),
        (lambda x: x[:, torch.tensor([1, 2, 0])], "bca"),
        (lambda x: nn.functional.layer_norm(x + 1, (8,)).roll(1, 1), "cab"),
        (lambda x: torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1), ("#0", "a", "b")),
        (lambda x: x + x.mean(1, keepdim=True), "abc"),
        (lambda x: x + x.flip(1), "abc"),
    ],
)
def test_names_follow_vectors_that_are_moved(move: Callable[[Tensor], Tensor], names: Any) -> None:
    class Later(Moving):
        def forward(self, ids: Tensor) -> Tensor:
            q, k, v = self.project(self.move(self.table(ids))).chunk(3, -1)
            return (q @ k.mT).softmax(-1) @ v

    found = attention(Later(move), IDS, row=1, tokens=list("abc"))
    assert found.stacks[0].queries == found.stacks[0].keys == tuple(names)
    assert bool(found.notes) == (names != "abc")


def test_positions_looked_up_beside_the_ids_do_not_name_them() -> None:
    """Positions counted from the ids (padding left out), an offset, a second table of pairs."""

    class Counted(Moving):
        def forward(self, ids: Tensor) -> Tensor:
            places = (ids != 2).long().cumsum(1)
            x = self.table(ids.flip(1).flip(1)) + self.table(places) + self.table(ids.roll(1, 1))
            q, k, v = self.project(x).chunk(3, -1)
            return (q @ k.mT).softmax(-1) @ v

    for model in (Counted(lambda ids: ids), Moving(lambda ids: (ids + 1) % 9)):
        found = attention(model, IDS, row=1)
        assert found.stacks[0].keys == ("5", "2", "8") and found.notes == ()


def test_names_may_come_in_any_form() -> None:
    def keys(tokens: Any, **more: Any) -> tuple[str, ...]:
        return attention(Reader(), IDS, row=1, tokens=tokens, **more).stacks[0].keys

    assert keys(torch.tensor([7, 8, 9])) == keys(torch.tensor([7, 8, 9]).numpy()) == ("7", "8", "9")
    assert keys(letter for letter in "abc") == keys("abc") == ("a", "b", "c")
    # a tokenizer has no name for an id beyond its vocabulary
    assert keys(lambda ids: [None if n == 2 else f"<{n}>" for n in ids]) == ("<5>", "2", "<8>")
    made: Names = lambda ids: [f"<{n}>" for n in ids]  # noqa: E731
    assert keys(made, source_tokens=made) == keys(made) == ("<5>", "<2>", "<8>")


@pytest.mark.parametrize("ways", [lambda ids: 1 / 0, lambda ids: None])
def test_what_a_function_raises_is_one_line(ways: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^tokens must be a function from .* names: it raised \w+Error: .+$"
    ):
        attention(Reader(), IDS, tokens=ways)


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
