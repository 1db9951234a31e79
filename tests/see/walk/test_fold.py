"""Groups: blocks with a module of their own or without, sub-layers within, equal neighbours as one."""

from __future__ import annotations

from torch import Tensor, nn

from headwise.see.walk.fold import folded, signature
from headwise.see.walk.steps import Group, Row
from headwise.see.walk.walk import trace
from see.walk.walk_models import Attention, Block, Einsum, Llama, ids, numbers


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
