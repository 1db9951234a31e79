"""Groups: blocks with a module of their own or without, sub-layers within, equal neighbours as one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.see.walk.fold import _inside, folded, signature  # pyright: ignore[reportPrivateUsage]
from headwise.see.walk.steps import Group, Row, Step
from headwise.see.walk.walk import trace
from see.walk.odd_models import TimeFirst, Towers
from see.walk.walk_models import Attention, Block, Einsum, Llama, ids, numbers, seen


def outline(rows: tuple[Row, ...]) -> list[object]:
    return [(r.title, r.times, outline(r.rows)) if isinstance(r, Group) else r.name for r in rows]


def test_blocks_without_modules_end_where_the_next_attention_is_prepared() -> None:
    inner = ["up", "activation", "down"]
    told = outline(trace(Einsum(), ids()).rows)
    assert told[4:] == [
        (
            "block",
            2,
            [
                "RMSNorm",
                ("attention", 1, ["Q, K, V", "split into heads", "scores", "mask", "softmax",
                                  "softmax times V", "merge heads", "output projection"]),
                "add",
                "RMSNorm",
                ("feed-forward", 1, inner),
                "add",
            ],
        ),
        "logits",
    ]  # fmt: skip


def test_post_norms_stay_in_their_block_and_a_final_norm_does_not() -> None:
    class Inline(nn.Module):
        """Post-norm blocks in one forward: no module of a block's own."""

        def __init__(self, final: bool) -> None:
            super().__init__()
            self.a = nn.ModuleList(Attention() for _ in range(3))
            self.f = nn.ModuleList(
                nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(3)
            )
            self.n = nn.ModuleList(nn.LayerNorm(16) for _ in range(7))
            self.final = final

        def forward(self, x: Tensor) -> Tensor:
            for n, (a, f) in enumerate(zip(self.a, self.f, strict=True)):
                if self.final:
                    x = x + a(self.n[2 * n](x))
                    x = x + f(self.n[2 * n + 1](x))
                else:
                    x = self.n[2 * n](x + a(x))
                    x = self.n[2 * n + 1](x + f(x))
            return self.n[6](x) if self.final else x

    post = [r for r in trace(Inline(False), numbers(2, 10, 16)).rows if isinstance(r, Group)]
    assert [(r.times, len(r.rows)) for r in post] == [(3, 6)]
    rows = trace(Inline(True), numbers(2, 10, 16)).rows
    assert [(r.times, len(r.rows)) for r in rows if isinstance(r, Group)] == [(3, 6)]
    assert not isinstance(rows[-1], Group) and rows[-1].name == "LayerNorm"


def test_the_modules_of_a_fold_are_all_named() -> None:
    (group,) = [r for r in trace(nn.Sequential(*(Block() for _ in range(4))), numbers(2, 10, 16)).rows
                if isinstance(r, Group)]  # fmt: skip
    assert group.modules == ("0", "1", "2", "3") and group.times == 4


def test_folding_is_idempotent_and_loses_no_row() -> None:
    rows = list(trace(Llama(depth=3), ids()).rows)
    apart: list[Row] = []
    for row in rows:
        times = row.times if isinstance(row, Group) else 1
        one = [Group(row.title, row.kind, 1, (path,), row.rows) for path in row.modules] if isinstance(
            row, Group
        ) else [row]  # fmt: skip
        assert len(one) == times
        apart.extend(one)
    assert folded(apart) == rows == folded(rows)
    assert len({str(signature(row)) for row in apart}) == len(rows)


def test_one_module_used_again_is_a_block_each_time() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = self.block(x)
            return x

    (group,) = [r for r in trace(Again(), numbers(2, 10, 16)).rows if isinstance(r, Group)]
    assert (group.times, set(group.modules)) == (3, {"block"})


def test_branches_side_by_side_are_two_sub_layers_of_one_block() -> None:
    class Parallel(Block):
        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            return x + self.attention(y) + self.inner(y)

    model = nn.Sequential(Parallel(), Parallel())
    (group,) = [r for r in trace(model, numbers(2, 10, 16)).rows if isinstance(r, Group)]
    titles = [row.title for row in group.rows if isinstance(row, Group)]
    assert group.times == 2 and titles == ["attention", "feed-forward"]


def test_layers_that_hide_as_many_but_not_the_same_are_not_folded() -> None:
    class Column(Attention):
        """Hides one key from all other queries."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column

        def forward(self, x: Tensor) -> Tensor:
            gone = torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)
            gone[:, self.column], gone[self.column, self.column] = True, False
            q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
            scores = (q @ k.transpose(-2, -1) * self.scale).masked_fill(gone, -1e9)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))

    def times(*columns: int) -> list[int]:
        blocks = [Block() for _ in columns]
        for block, column in zip(blocks, columns, strict=True):
            block.attention = Column(column)
        return [
            r.times for r in trace(nn.Sequential(*blocks), numbers(2, 7, 16)).rows if isinstance(r, Group)
        ]

    assert times(1, 4) == [1, 1] and times(4, 4) == [2]


def test_shared_weights_are_told_and_not_folded() -> None:
    model = nn.Sequential(*(Block() for _ in range(3)))
    model[1].attention = model[0].attention  # pyright: ignore
    walk = trace(model, numbers(2, 7, 16))
    assert [r.times for r in walk.rows if isinstance(r, Group)] == [1, 1, 1]
    told = [s.operation for s in walk.steps if "shares" in s.operation]
    assert told == [
        "3 linear 16 -> 16; shares its weights with 0.attention.value",
        "linear 16 -> 16; shares its weights with 0.attention.out",
    ]


@pytest.mark.parametrize("way", ["eps", "frozen"])
def test_another_eps_and_a_frozen_layer_are_told_and_not_folded(way: str) -> None:
    model = nn.Sequential(*(Block() for _ in range(3)))
    if way == "eps":
        model[1].first.eps = 1e-3  # pyright: ignore
    else:
        model[1].inner.requires_grad_(False)  # pyright: ignore
    walk = trace(model, numbers(2, 7, 16))
    assert [r.times for r in walk.rows if isinstance(r, Group)] == [1, 1, 1]
    told = [s.operation for s in walk.steps]
    if way == "eps":
        assert told.count("over D, eps 0.001") == 1 and told.count("over D, eps 1e-05") == 5
    else:
        assert [each for each in told if "frozen" in each] == [
            "linear 16 -> 64, frozen", "linear 64 -> 16, frozen",
        ]  # fmt: skip
        model.requires_grad_(False)
        assert len([r for r in trace(model, numbers(2, 7, 16)).rows if isinstance(r, Group)]) == 1


class Mixing(nn.Module):
    """Residual layers without attention."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(depth))
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 40), nn.GELU(), nn.Linear(40, 16)) for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for norm, inner in zip(self.norms, self.inner, strict=True):
            x = x + torch.fft.fft2(x).real
            x = x + inner(norm(x))
        return x


def test_layers_without_attention_and_steps_in_time_fold_too() -> None:
    walk = trace(Mixing(3), numbers(2, 7, 16))
    (group,) = [r for r in walk.rows if isinstance(r, Group)]
    assert (group.kind, group.times, len(group.rows)) == ("repeat", 3, 4)

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            h = c = x[:, 0]
            for n in range(x.shape[1]):
                h, c = self.cell(x[:, n], (h, c))
            return h

    walk = trace(Cell(), numbers(2, 7, 16))
    assert [r.times for r in walk.rows if isinstance(r, Group)] == [7]
    assert sum(r.times * s.flops for r in walk.rows if isinstance(r, Group) for s in r.steps) == walk.flops


def test_experts_of_which_one_is_shared_are_not_folded() -> None:
    class Loop(nn.Module):
        def __init__(self, *layers: nn.Module) -> None:
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    a, b, c = (nn.Linear(16, 16) for _ in range(3))
    times = [
        [r.times for r in trace(Loop(*layers), numbers(2, 7, 16)).rows if isinstance(r, Group)]
        for layers in ((a, b, c), (a, a, a), (a, b, a))
    ]
    assert times == [[3], [3], [2]]


def test_layers_that_alternate_fold_in_pairs_and_counts_that_differ_do_not() -> None:
    def group(times: int, name: str) -> Group:
        rows = trace(nn.Sequential(nn.Linear(4, len(name) + 1)), numbers(2, 4)).rows[1:]
        return Group(name, "block", times, ("",) * times, tuple(rows))

    pairs = folded([group(1, "a"), group(1, "bb")] * 3)
    assert [(r.kind, r.times, len(r.rows)) for r in pairs if isinstance(r, Group)] == [("repeat", 3, 2)]
    apart = folded([group(1, "a"), group(1, "bb"), group(2, "a"), group(1, "bb")])
    assert [r.times for r in apart if isinstance(r, Group)] == [1, 1, 2, 1]


def test_towers_are_called_by_what_they_read_and_what_compares_them_is_in_neither() -> None:
    walk = trace(Towers(), {"ids": ids(2, 7), "pixels": numbers(2, 3, 12, 12)})
    sections = [row for row in walk.rows if isinstance(row, Group)]
    assert [(each.title, each.kind) for each in sections] == [("ids", "section"), ("pixels", "section")]
    assert "product" in {row.name for row in walk.rows if isinstance(row, Step)}


def test_a_test_of_the_decoders_mask_is_the_decoders() -> None:
    walk = trace(TimeFirst(), (ids(9, 2), ids(7, 2)))
    encoder, decoder = (row for row in walk.rows if isinstance(row, Group))
    names = [[row.name for row in each.rows if isinstance(row, Step)] for each in (encoder, decoder)]
    assert "prepared" in names[1] and "prepared" not in names[0]


def test_what_is_inside_of_a_norm_is_what_the_recording_says() -> None:
    probe, layers, _, _ = seen(Einsum(), ids())
    assert layers.norms
    for norm in layers.norms:
        assert _inside(norm) == probe.record.between([norm.entered], [norm.out]) != []
