"""Of a large batch the masks are counted on the whole of it, exactly, or nothing is said beyond the part."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.see.walk import once as module
from headwise.see.walk.walk import trace
from headwise.see.walk.whole_masks import Looking, digest
from see.walk.walk_models import Attention, numbers, step


class Local(Attention):
    """Each query sees itself and the `window - 1` before it; `strong` is what hides."""

    def __init__(self, window: int, strong: float = float("-inf"), last: bool = True) -> None:
        super().__init__()
        self.window, self.strong, self.last = window, strong, last

    def forward(self, x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        gone = (at[None] > at[:, None]) | (at[:, None] - at[None] >= self.window)
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = (q @ k.transpose(-2, -1) * self.scale).masked_fill(gone, self.strong)
        weights = scores.softmax(-1) if self.last else scores.mT.softmax(-2).mT
        return self.out((weights @ v).transpose(1, 2).reshape(x.shape))


@pytest.mark.parametrize(
    ("window", "told"),
    [
        (60, f"hides {90 * 90 - sum(min(n + 1, 60) for n in range(90))} of 8100 pairs"),
        (90, f"causal: hides {90 * 89 // 2} of 8100 pairs"),
    ],
)
def test_a_window_that_the_part_does_not_reach_is_counted(
    window: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE_BYTES", 1000)
    walk = trace(Local(window), numbers(4, 90, 16))
    assert any("a part of it" in note for note in walk.notes) and step(walk, "mask").operation == told


@pytest.mark.parametrize("unseen", [Local(60, strong=-100.0), Local(60, last=False)])
def test_where_it_is_not_seen_nothing_is_said_of_the_whole(
    unseen: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGE_BYTES", 1000)
    told = step(trace(unseen, numbers(4, 90, 16)), "mask").operation
    assert "causal" not in told and "pairs" not in told and told.endswith("of a part of the batch")


def test_looking_keeps_counts_alone_and_tells_patterns_of_one_size_apart() -> None:
    scores = torch.zeros(3, 2, 4, 4)
    scores[..., 1:, 0] = float("-inf")
    with Looking() as looking:
        scores.softmax(-1)
        scores.mT.softmax(-1)
        scores.softmax(1)
    one, other = looking.by_call().values()
    assert (one.many, one.total, one.each, one.kind) == (18, 96, 3, "")
    assert other.many == one.many and other.pattern != one.pattern
    hidden = torch.isneginf(scores[0, :1])
    assert digest(hidden) == one.pattern != digest(hidden.mT)
