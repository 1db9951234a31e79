"""An attention told in order and as measured: its scale, what its mask hides, where its softmax sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.see.walk.walk import trace
from see.walk.walk_models import Attention, Block, ids, numbers, step

ORDER = ["projection", "split", "scores", "mask", "softmax", "mix", "merge", "output"]


def test_steps_come_in_the_order_of_the_telling_whatever_the_code_has() -> None:
    class Late(Attention):
        """Values are made last."""

        def forward(self, x: Tensor) -> Tensor:
            scores = self.split(self.query(x)) @ self.split(self.key(x)).transpose(-2, -1) * self.scale
            keep = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            weights = scores.masked_fill(~keep, float("-inf")).softmax(-1)
            return self.out((weights @ self.split(self.value(x))).transpose(1, 2).reshape(x.shape))

    block = Block()
    for attention in (Attention(causal=True), Late()):
        block.attention = attention
        walk = trace(block, numbers(2, 10, 16))
        kinds = [s.kind for s in walk.steps if s.kind in ORDER]
        assert kinds == ORDER and step(walk, "split into heads").count == 3


@pytest.mark.parametrize(
    ("scale", "told"),
    [
        (None, "Q K^T / sqrt(4)"),
        (1.0, "Q K^T not scaled (1/sqrt(4) = 0.5)"),
        (0.25, "Q K^T x 0.25 (1/sqrt(4) = 0.5)"),
    ],
)
def test_the_scale_is_told_as_measured(scale: float | None, told: str) -> None:
    assert step(trace(Block(scale=scale), numbers(2, 10, 16)), "scores").operation == told


class Masked(nn.Module):
    """A mask of any kind, added inside of the kernel."""

    def __init__(self, mask: Tensor | None, is_causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.mask, self.is_causal = nn.Linear(16, 48), nn.Linear(16, 16), mask, is_causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, self.mask, is_causal=self.is_causal)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


def keep(*hidden: int) -> Tensor:
    mask = torch.ones(2, 1, 10, 10, dtype=torch.bool)
    mask[..., list(hidden)] = False
    return mask


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (keep(), "hides nothing"),
        (keep(8, 9), "whole keys: hides 20 of 100 pairs"),
        (torch.cat([keep()[:1], keep(9)[:1]]), "whole keys: hides 40 of 800 pairs"),
        (keep().tril(), "causal: hides 45 of 100 pairs"),
        (keep(0).tril() | torch.eye(10, dtype=torch.bool), "hides 54 of 100 pairs"),
        (keep().tril(1), "hides 36 of 100 pairs"),
    ],
)
def test_what_a_mask_hides_is_counted(mask: Tensor, told: str) -> None:
    walk = trace(Masked(mask), numbers(2, 10, 16))
    assert step(walk, "mask").operation == told and step(walk, "mask").shape == (2, 4, 10, 10)


def test_a_causal_kernel_shows_its_mask_and_its_fused_projection() -> None:
    walk = trace(Masked(None, is_causal=True), numbers(2, 10, 16))
    assert step(walk, "mask").operation == "causal: hides 45 of 100 pairs"
    projection, split = step(walk, "Q, K, V"), step(walk, "split into heads")
    assert (projection.operation, projection.shape, projection.axes) == (
        "linear 16 -> 48", (2, 10, 48), ("B", "T", "3D"),
    )  # fmt: skip
    assert (split.count, split.shape, split.axes) == (3, (2, 4, 10, 4), ("B", "H", "T", "Dh"))


def test_a_bias_of_positions_is_no_mask() -> None:
    walk = trace(Masked(torch.randn(10, 10)), numbers(2, 10, 16))
    assert step(walk, "position bias").operation == "added to the scores"
    assert not [s for s in walk.steps if s.name == "mask"]


def test_a_softmax_over_the_queries_is_said_so() -> None:
    class Wrong(Attention):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
            return self.out(((q @ k.mT * 0.5).softmax(-2) @ v).transpose(1, 2).reshape(x.shape))

    block = Block()
    block.attention = Wrong()
    assert step(trace(block, numbers(2, 10, 16)), "softmax").operation == "over the queries"
    assert step(trace(Block(), numbers(2, 10, 16)), "softmax").operation == "over the keys"


def test_one_layer_for_each_head_is_one_attention() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList(nn.ModuleList(nn.Linear(16, 4) for _ in range(3)) for _ in range(4))
            self.out = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            found = []
            for q, k, v in self.heads:  # pyright: ignore
                found.append((q(x) @ k(x).mT / 2).softmax(-1) @ v(x))
            return x + self.out(torch.cat(found, -1))

    walk = trace(Loop(), numbers(2, 10, 16))
    told = {s.name: (s.count, s.shape) for s in walk.steps}
    assert told["Q, K, V"] == (12, (2, 10, 4)) and told["scores"] == (4, (2, 10, 10))
    assert told["softmax times V"] == (4, (2, 10, 4)) and told["merge heads"] == (1, (2, 10, 16))


def test_keys_and_values_of_another_length_have_rows_of_their_own() -> None:
    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Embedding(23, 16), nn.Embedding(23, 16)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            x, memory = self.one(target), self.other(source)
            return x + self.attention(x, memory, memory, need_weights=False)[0]

    for length in (5, 7):
        walk = trace(Cross(), (ids(3, length), ids(3, 7)), kind="encoder-decoder")
        assert step(walk, "Q").axes == ("B", "T", "D") and step(walk, "K, V").axes == ("B", "S", "D")
        assert step(walk, "scores").axes == ("B", "H", "T", "S")
        assert step(walk, "scores").shape == (3, 2, 7, length)
        assert [s.axes[2] for s in walk.steps if s.name in {"split Q", "split K, V"}] == ["T", "S"]
