"""Which attention is the encoder's, the decoder's, or between them; which are one layer."""

from __future__ import annotations

from typing import Any

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
    assert found.stacks[0].queries == ("3", "5", "2", "7") and found.stacks[1].queries == ("0", "1", "2")


def test_labels_may_be_what_the_decoder_reads() -> None:
    found = attention(
        Pair(), {"source": SOURCE, "labels": TARGET}, kind="encoder-decoder", tokens=list("abc")
    )
    assert shapes(found) == PAIR
    assert found.stacks[2].queries == tuple("abc") and found.stacks[2].keys == ("3", "5", "2", "7")


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
    assert found.stacks[1].keys == ("3", "5", "2", "7") and found.stacks[1].queries == tuple("01234")
    pooled = attention(Latents(1, is_projected=False), SOURCE)
    assert shapes(pooled) == [("cross", 1, (1, 1, 4))]


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
