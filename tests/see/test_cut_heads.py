"""Heads that were cut wrongly are told, and their rows bear no token's name; right ones are left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headwise
from headwise import LanguageModel, ModelConfig

Cut = Callable[[Tensor], Tensor]


class Attending(nn.Module):
    """Two heads over eight tokens, cut by `cut`."""

    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self.tokens, self.cut = nn.Embedding(30, 12), cut
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        q, k, v = (self.cut(layer(x)) for layer in (self.q, self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def right(x: Tensor) -> Tensor:
    return x.view(x.size(0), x.size(1), 2, 6).transpose(1, 2)


def across_time(x: Tensor) -> Tensor:
    return x.reshape(x.size(0), 2, x.size(1), 6)


WORDS = ["the", "cat", "sat", "on", "the", "mat", "and", "slept"]


def test_a_view_without_a_transpose_is_told_and_rows_have_no_names() -> None:
    seen = headwise.attention(Attending(across_time), torch.arange(8)[None] + 3, tokens=WORDS)
    assert any("heads are cut across time in 1 of 1 attentions" in note for note in seen.notes)
    assert seen.stacks[0].queries == seen.stacks[0].keys == tuple(f"#{n}" for n in range(8))


@pytest.mark.parametrize("model", ["by hand", "rotary", "grouped", "nn.MultiheadAttention"])
def test_heads_that_are_cut_rightly_keep_their_names(model: str) -> None:
    shape = ModelConfig(
        vocab_size=30, d_model=16, num_heads=4, num_encoder_layers=0, num_decoder_layers=1, 
        positions="rotary",
        num_kv_heads=2 if model == "grouped" else None, qk_norm=model == "grouped",
    )  # fmt: skip
    made: nn.Module = Attending(right) if model == "by hand" else LanguageModel(shape)
    if model == "nn.MultiheadAttention":
        made = nn.Sequential(nn.Embedding(30, 16), nn.TransformerEncoderLayer(16, 4, 16, batch_first=True))
    seen = headwise.attention(made, torch.arange(8)[None] + 3, tokens=WORDS)
    assert not any("cut across" in note for note in seen.notes)
    assert seen.stacks[0].queries == tuple(WORDS)


@pytest.mark.parametrize("fill", [float("-inf"), -1e9])
def test_a_mask_that_hides_all_from_all_is_told_with_its_line(fill: float) -> None:
    class Blind(Attending):
        def forward(self, ids: Tensor) -> Tensor:
            q, k, v = (self.cut(layer(self.tokens(ids))) for layer in (self.q, self.k, self.v))
            scores = (q @ k.mT / 6**0.5).masked_fill((ids != 0)[:, None, None, :], fill)
            return scores.softmax(-1) @ v

    seen = headwise.attention(Blind(right), torch.arange(8)[None] + 3)
    [note] = [note for note in seen.notes if "HW105" in note]
    assert "in 1 of 1 attentions the mask hides every key from every query" in note
    assert "test_cut_heads.py:" in note


def test_a_causal_mask_is_not_told() -> None:
    seen = headwise.attention(Attending(right), torch.arange(8)[None] + 3)
    assert not any("HW105" in note for note in seen.notes)
