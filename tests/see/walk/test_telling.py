"""Every operation of a pass belongs to exactly one step; nothing is dropped, nothing told twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.see.walk.steps import Group, Row, Step
from headwise.see.walk.walk import trace
from see.walk.walk_models import Block, Einsum, Llama, TimeMajor, drafted, ids, numbers, seen, step


def parts(rows: tuple[Row, ...], times: int = 1) -> Counter[str]:
    """How often each operation of torch's stands in the rows."""
    found: Counter[str] = Counter()
    for row in rows:
        if isinstance(row, Step):
            for part in row.parts:
                found[part.name] += times
        elif isinstance(row, Group):
            found += parts(row.rows, times * row.times)
    return found


class Odd(nn.Module):
    """Much that is no step of a Transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(23, 8)
        self.gru = nn.Conv1d(8, 8, 3, padding=1)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.table(ids)
        self.seen += x.mean((0, 1))
        y = self.gru(x.transpose(1, 2)).transpose(1, 2)
        x[:, 0] = 0
        if x.abs().max() > 1e9:
            raise ValueError
        return F.log_softmax(y.cumsum(1).topk(3, -1).values, -1), x.T if x.dim() == 2 else x.mT


@pytest.mark.parametrize("model", [Block, Einsum, Llama, TimeMajor, Odd])
def test_every_operation_belongs_to_exactly_one_step(model: type[nn.Module]) -> None:
    given: Any = numbers(2, 10, 16) if model is Block else ids()
    probe, _, _, claims = seen(model(), given)
    every = [op for draft in claims.drafts for op in draft.ops]
    assert len(every) == len(set(every)) and set(every) == set(probe.record.ops)
    assert all(claims.of[op] is draft for draft in claims.drafts for op in draft.ops)
    walk = trace(model(), given)
    assert parts(walk.rows) == Counter(op.name for op in probe.record.ops)


def test_memory_of_the_steps_is_that_of_the_pass() -> None:
    walk = trace(Odd(), ids())
    assert sum(s.bytes for s in walk.steps) == walk.bytes > 0


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(16))
        self.other = nn.RMSNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        x = self.gain * centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() + self.shift
        return self.head(self.other(x))


def test_norms_by_hand_are_told_from_torchs_and_from_one_another() -> None:
    walk = trace(Norms(), numbers(2, 10, 16))
    told = [(s.name, s.operation, s.params) for s in walk.steps if s.kind == "norm"]
    assert told == [
        ("LayerNorm", "over 16 (by hand), eps 1e-05", 32),
        ("RMSNorm", "over 16, eps 1.19e-07", 16),
    ]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (F.gelu, "gelu"),
        (lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3))), "gelu (tanh) (by hand)"),
        (lambda x: x * torch.sigmoid(1.702 * x), "gelu (sigmoid) (by hand)"),
        (lambda x: F.relu(x) ** 2, "relu squared (by hand)"),
        (torch.sin, "sin"),
    ],
)
def test_activations_are_told_by_what_they_compute(function: Any, told: str) -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.down(function(self.up(x)))

    walk = trace(Inner(), numbers(2, 10, 16))
    assert step(walk, "activation").operation == told
    assert [s.name for s in walk.steps] == ["input x", "up", "activation", "down", "add"]


def test_a_head_behind_the_blocks_is_no_feed_forward_layer() -> None:
    model = nn.Sequential(Block(), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 5))
    walk = trace(model, numbers(2, 10, 16))
    assert [s.name for s in walk.steps][-3:] == ["linear", "gelu", "linear"]
    assert step(walk, "up").operation == "linear 16 -> 64"


def test_tables_are_told_by_what_is_looked_up() -> None:
    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.kinds, self.places = nn.Embedding(23, 8), nn.Embedding(2, 8), nn.Embedding(9, 8)

        def forward(self, input_ids: Tensor, token_type_ids: Tensor) -> Tensor:
            places = self.places(torch.arange(input_ids.shape[1]))
            return self.words(input_ids) * 8**0.5 + self.kinds(token_type_ids) + places

    walk = trace(Tables(), {"input_ids": ids(), "token_type_ids": ids() % 2})
    names = [s.name for s in walk.steps]
    assert "embedding" in names and "embedding of token_type_ids" in names
    assert [step(walk, n).shape for n in ("positions", "add positions")] == [(7, 8), (3, 7, 8)]
    assert any("times 2.83" in s.operation for s in walk.steps)


def test_patches_are_told_with_their_convolution() -> None:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut, self.block = nn.Conv2d(3, 16, 4, 4), Block()

        def forward(self, images: Tensor) -> Tensor:
            return self.block(self.cut(images).flatten(2).transpose(1, 2)).mean(1)

    walk = trace(Patches(), numbers(2, 3, 12, 8))
    first = step(walk, "patches")
    assert (first.operation, first.shape) == ("convolution 3 -> 16, 4 x 4", (2, 16, 3, 2))
    assert walk.steps[0].axes == ("B", "channels", "height", "width")
    assert step(walk, "scores").shape == (2, 4, 6, 6)


def test_the_failing_operation_is_a_step_of_its_own() -> None:
    class Fails(Block):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) @ x

    _, _, _, claims = seen(Fails(), numbers(2, 10, 16))
    assert drafted(claims, "fails here").operation == "product"


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_products_with_parameters_of_the_root_have_a_name() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.v = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))

        def forward(self, x: Tensor) -> Tensor:
            return torch.mv((x @ self.w).flatten(0, 1), self.v)

    assert [s.name for s in trace(Model(), numbers(2, 5, 8)).steps[1:]] == ["linear", "linear"]
    scripted = torch.jit.script(nn.Sequential(nn.Linear(8, 6), nn.ReLU()))
    assert [s.name for s in trace(scripted, numbers(2, 5, 8)).steps[1:]] == ["linear", "relu"]


@pytest.mark.parametrize(
    ("module", "told"),
    [(nn.Hardswish(), "hardswish"), (nn.PReLU(), "prelu"), (nn.ReLU6(), "relu6"), (nn.SELU(), "selu"),
     (nn.GELU("tanh"), "gelu (tanh)"), (nn.Tanh(), "tanh")],
)  # fmt: skip
def test_activations_are_named_where_their_numbers_say_nothing(module: nn.Module, told: str) -> None:
    block = Block()
    block.inner[1] = module
    nn.init.zeros_(block.inner[0].weight)  # pyright: ignore
    nn.init.zeros_(block.inner[0].bias)  # pyright: ignore
    assert step(trace(block, numbers(2, 10, 16)), "activation").operation == told


def test_a_convolution_of_single_pixels_makes_no_patches() -> None:
    walk = trace(nn.Conv2d(3, 8, 1), numbers(2, 3, 12, 20))
    assert [each.name for each in walk.steps if each.kind == "embedding"] == ["convolution"]
