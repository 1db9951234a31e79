"""The numbers of a head: entropy of what it may look at, its largest weight, its favourite key."""

from __future__ import annotations

import math

import pytest
import torch

from headwise.see.heads import head_facts
from headwise.see.stacks import Layer
from headwise.see.watch.measure import QUERIES, HeadSeen, canonical, head_numbers, rms, std, visible
from headwise.see.watch.plan import Axes


def test_they_are_those_of_the_attention_page() -> None:
    scores = torch.randn(2, 3, 6, 6) * 2
    keep = torch.ones(6, 6).tril().bool()
    weights = scores.masked_fill(~keep, float("-inf")).softmax(-1)
    share, _, _ = head_numbers(weights, keep.expand(2, 3, 6, 6))
    pages = [[head.share for head in head_facts(Layer("", row, keep[None]))] for row in weights]
    assert share.tolist() == pytest.approx(torch.tensor(pages).mean(0).tolist(), rel=1e-5)


def test_states() -> None:
    keep = torch.ones(1, 3, 4, 4).bool()
    uniform, first, own = torch.full((4, 4), 0.25), torch.eye(4)[:1].expand(4, 4), torch.eye(4)
    share, top, one = head_numbers(torch.stack([uniform, first, own])[None], keep)
    heads = [HeadSeen(*map(float, each)) for each in zip(share, top, one, strict=True)]
    assert [head.state for head in heads] == ["uniform", "dead", "one-hot"]
    assert heads[0].entropy == pytest.approx(1)


def test_a_query_without_a_choice_does_not_count() -> None:
    keep = torch.eye(3).bool().expand(1, 1, 3, 3)
    share, top, one = head_numbers(torch.eye(3).expand(1, 1, 3, 3), keep)
    assert (float(share), float(top), float(one)) == (0, 0, 0)


def test_the_canonical_form() -> None:
    weights = torch.rand(2, 3, 5, 7)  # rows, heads, queries, keys
    assert torch.equal(canonical(weights, Axes(2, 3, 1)), weights)
    assert torch.equal(canonical(weights.permute(3, 1, 0, 2), Axes(3, 0, 1)), weights)
    assert torch.equal(canonical(weights.flatten(0, 1), Axes(1, 2, 0, "rows", 3)), weights)
    turned = weights.transpose(0, 1).flatten(0, 1)
    assert torch.equal(canonical(turned, Axes(1, 2, 0, "heads", 3)), weights)
    assert canonical(weights[:, 0], Axes(1, 2)).shape == (2, 1, 5, 7)
    long = canonical(torch.rand(1, 1, 300, 300), Axes(2, 3, 1))
    assert long.shape == (1, 1, QUERIES, 300)


def test_sizes() -> None:
    x = torch.randn(50, 40).half() * 3 + 1
    assert float(std(x)) == pytest.approx(float(x.double().std(correction=0)), rel=1e-3)
    assert float(rms(x)) == pytest.approx(math.sqrt(float(x.double().square().mean())), rel=1e-3)


@pytest.mark.parametrize("hidden", [float("-inf"), -1e9, -1e3])
def test_hidden_keys_are_none_however_a_mask_hides_them(hidden: float) -> None:
    scores = torch.tensor([[[[1.0, 2.0, hidden, hidden + 1]]]])
    assert visible(scores).tolist() == [[[[True, True, False, False]]]]


def test_scores_that_are_far_apart_are_computed_all_the_same() -> None:
    assert visible(torch.tensor([[[[0.0, 90.0, 300.0, 420.0]]]])).all()


def test_a_query_that_sees_no_key_counts_for_nothing() -> None:
    scores = torch.zeros(1, 1, 2, 4)
    scores[:, :, 0] = float("-inf")
    share, top, _ = head_numbers(scores.softmax(-1), visible(scores))
    assert share.tolist() == pytest.approx([1.0]) and top.tolist() == [0.25]
