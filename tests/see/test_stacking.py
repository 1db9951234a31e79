"""Which attention is the encoder's, the decoder's, or between them; which are one layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.see.attention import Attention, attention

D, H = 12, 3
SOURCE, TARGET = torch.tensor([[3, 5, 2, 7]]), torch.tensor([[4, 6, 1]])


def block() -> nn.MultiheadAttention:
    return nn.MultiheadAttention(D, H, batch_first=True)


class Pair(nn.Module):
    """An encoder and a decoder; the target is a second input, or made of `labels`, or of the source."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(9, D)
        self.encoder = nn.ModuleList(block() for _ in range(depth))
        self.decoder = nn.ModuleList(block() for _ in range(depth))
        self.cross = nn.ModuleList(block() for _ in range(depth))

    def forward(self, source: Tensor, target: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
        x = self.table(source)
        y = self.table(
            labels.roll(1, 1) if labels is not None else source[:, :3] if target is None else target
        )
        for layer in self.encoder:
            x = x + layer(x, x, x)[0]
        for own, cross in zip(self.decoder, self.cross, strict=True):
            y = y + own(y, y, y)[0]
            y = y + cross(y, x, x)[0]
        return y


def shapes(found: Attention) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(s.kind, len(s.layers), tuple(s.layers[0].weights.shape)) for s in found.stacks]


PAIR = [("encoder", 2, (H, 4, 4)), ("decoder", 2, (H, 3, 3)), ("cross", 2, (H, 3, 4))]


def test_two_inputs_tell_encoder_decoder_and_cross_apart() -> None:
    found = attention(Pair(), (SOURCE, TARGET))
    assert shapes(found) == PAIR
    source, target = ("3", "5", "2", "7"), ("4", "6", "1")
    named = {stack.kind: (stack.queries, stack.keys, stack.axes) for stack in found.stacks}
    assert named == {
        "encoder": (source, source, ("source: read", "source: reading")),
        "decoder": (target, target, ("target: read", "target: reading")),
        "cross": (target, source, ("source: read", "target: reading")),
    }
    assert [layer.name for layer in found.stacks[2].layers] == ["cross.0", "cross.1"]


def test_one_input_is_told_apart_by_who_reads_whom() -> None:
    found = attention(Pair(), (SOURCE,))
    assert shapes(found) == PAIR
    assert found.stacks[0].queries == ("3", "5", "2", "7") and found.stacks[1].queries == ("3", "5", "2")


def test_labels_may_be_what_the_decoder_reads() -> None:
    found = attention(
        Pair(), {"source": SOURCE, "labels": TARGET}, kind="encoder-decoder", tokens=list("abc")
    )
    assert shapes(found) == PAIR
    # the decoder reads the labels turned by one
    assert found.stacks[2].queries == tuple("cab") and found.stacks[2].keys == ("3", "5", "2", "7")


class Towers(nn.Module):
    """Two inputs that never look at one another."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.left, self.right = nn.Embedding(9, D), block(), block()

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        a, b = self.table(left), self.table(right)
        return self.left(a, a, a)[0].mean(1) @ self.right(b, b, b)[0].mean(1).mT


def test_two_towers_are_two_stacks_of_self_attention() -> None:
    found = attention(Towers(), (SOURCE, TARGET))
    assert shapes(found) == [("self", 1, (H, 4, 4)), ("self", 1, (H, 3, 3))]
    assert [stack.queries for stack in found.stacks] == [("3", "5", "2", "7"), ("4", "6", "1")]
    assert any("stand apart" in note for note in found.notes)


class Latents(nn.Module):
    """Learnt queries read the input, then each other; unless projected they are parameters as they are."""

    def __init__(self, count: int = 5, is_projected: bool = True) -> None:
        super().__init__()
        self.table, self.latents = nn.Embedding(9, D), nn.Parameter(torch.randn(count, D))
        self.read, self.think, self.is_projected = block(), block(), is_projected

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        z = self.latents.expand(len(ids), -1, -1)
        if not self.is_projected:
            return (z @ x.mT).softmax(-1) @ x
        z = z + self.read(z, x, x)[0]
        return z + self.think(z, z, z)[0]


def test_learnt_queries_read_by_cross_attention() -> None:
    found = attention(Latents(), SOURCE)
    assert shapes(found) == [("decoder", 1, (H, 5, 5)), ("cross", 1, (H, 5, 4))]
    assert found.stacks[1].axes == ("source: read", "query: reading")
    assert found.stacks[1].keys == ("3", "5", "2", "7") and found.stacks[1].queries == (
        "#0",
        "#1",
        "#2",
        "#3",
        "#4",
    )
    pooled = attention(Latents(1, is_projected=False), SOURCE)
    assert shapes(pooled) == [("cross", 1, (1, 1, 4))]


@pytest.mark.parametrize("names", [None, list("abcd"), lambda ids: [f"<{n}>" for n in ids]])
def test_learnt_queries_as_many_as_the_tokens_are_still_numbered(names: Any) -> None:
    for stack in attention(Latents(4), SOURCE, tokens=names).stacks:
        assert stack.queries == ("#0", "#1", "#2", "#3")
        wanted = {None: "3", "list": "a"}.get(names if names is None else type(names).__name__, "<3>")
        assert stack.keys[0] == (wanted if stack.kind == "cross" else "#0")


class Asks(nn.Module):
    """Two inputs; `both`: each asks the other, else the first asks the second."""

    def __init__(self, both: bool) -> None:
        super().__init__()
        self.table, self.one, self.two, self.both = nn.Embedding(9, D), block(), block(), both

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.table(a), self.table(b)
        asked = self.one(x, y, y)[0].mean(1)
        return asked + self.two(y, x, x)[0].mean(1) if self.both else asked


def test_names_belong_to_the_input_that_the_data_flow_from() -> None:
    (stack,) = attention(Asks(False), (SOURCE, TARGET), tokens="wxyz", source_tokens="abc").stacks
    assert (stack.queries, stack.keys) == (tuple("wxyz"), tuple("abc"))
    (stack,) = attention(Asks(False), (SOURCE, TARGET)).stacks
    assert (stack.queries, stack.keys) == (("3", "5", "2", "7"), ("4", "6", "1"))
    # each asks the other: the second input is the one that `tokens` name, as of an encoder-decoder
    one, two = attention(Asks(True), (SOURCE, TARGET), tokens="abc", source_tokens="wxyz").stacks
    assert {one.kind, two.kind} == {"cross"} and one.axes != two.axes
    assert (one.queries, one.keys) == (two.keys, two.queries) == (tuple("wxyz"), tuple("abc"))


class Tower(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(9, D), nn.ModuleList(block() for _ in range(depth))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for layer in self.layers:
            x = x + layer(x, x, x)[0]
        return x


class SideBySide(nn.Module):
    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.a, self.b, self.top = Tower(first), Tower(second), block()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.a(ids) + self.b(ids)
        return self.top(x, x, x)[0]


def test_towers_side_by_side_are_stacks_of_their_own() -> None:
    found = attention(SideBySide(2, 3), SOURCE)
    assert shapes(found) == [("self", 3, (H, 4, 4)), ("self", 3, (H, 4, 4))]
    names = [[layer.name for layer in stack.layers] for stack in found.stacks]
    # what reads both goes on with the first
    assert names == [["a.layers.0", "a.layers.1", "top"], ["b.layers.0", "b.layers.1", "b.layers.2"]]
    text = found.to_text()
    assert "Self-attention 1: 3 layers of 3 heads" in text and "Self-attention 2: 3 layers" in text


class OneByOne(nn.Module):
    """Each head is a module; `then` makes the second layer read the first, else both lie side by side."""

    def __init__(self, then: bool) -> None:
        super().__init__()
        self.table, self.then = nn.Embedding(9, D), then
        self.one = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(2))
        self.two = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(2))

    def heads(self, layers: Any, x: Tensor) -> Tensor:
        parts = [layer(x).chunk(3, -1) for layer in layers]
        return sum((q @ k.mT).softmax(-1) @ v for q, k, v in parts)  # type: ignore[return-value]

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        y = x + self.heads(self.one, x)
        return y + self.heads(self.two, y if self.then else x)


@pytest.mark.parametrize("way", ["concatenated", "projected each"])
def test_a_loop_of_single_heads_is_one_layer(way: str) -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.join = nn.Embedding(9, D), nn.Linear(D * H, D)
            self.heads = nn.ModuleList(nn.Linear(D, 3 * D) for _ in range(H))
            self.outs = nn.ModuleList(nn.Linear(D, D) for _ in range(H))

        def forward(self, ids: Tensor) -> Tensor:
            x = self.table(ids)
            parts = [head(x).chunk(3, -1) for head in self.heads]
            mixed = [(q @ k.mT).softmax(-1) @ v for q, k, v in parts]
            if way == "concatenated":
                return x + self.join(torch.cat(mixed, -1))
            return x + sum(out(each) for out, each in zip(self.outs, mixed, strict=True))

    assert shapes(attention(Loop(), SOURCE)) == [("self", 1, (H, 4, 4))]


def test_heads_that_are_modules_are_one_layer() -> None:
    assert shapes(attention(OneByOne(then=True), SOURCE)) == [("self", 2, (2, 4, 4))]
    assert shapes(attention(OneByOne(then=False), SOURCE)) == [("self", 1, (4, 4, 4))]


def test_masks_of_all_heads_alike_are_kept_once() -> None:
    class Slopes(nn.Module):
        def __init__(self, is_one: bool) -> None:
            super().__init__()
            self.table, self.project, self.is_one = nn.Embedding(9, D), nn.Linear(D, 3 * D), is_one

        def forward(self, ids: Tensor) -> Tensor:
            q, k, v = self.project(self.table(ids)).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
            hidden = torch.ones(1 if self.is_one else H, 4, 4, dtype=torch.bool).triu(1)
            hidden = hidden if self.is_one else hidden.tril(2) & (torch.arange(H) > 0)[:, None, None]
            return (q @ k.mT).masked_fill(hidden, -torch.inf).softmax(-1) @ v

    assert attention(Slopes(True), SOURCE).stacks[0].layers[0].keep.shape == (1, 4, 4)
    keep = attention(Slopes(False), SOURCE).stacks[0].layers[0].keep
    assert keep.shape == (H, 4, 4) and bool(keep[0].all()) and not bool(keep[1].all())
