"""Entropy, collapsed heads, means and rollout: from maps whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from headwise.errors import ConfigError
from headwise.see.heads import Head, head_facts, mean_over_heads, mean_over_layers, rollout
from headwise.see.stacks import Layer, Stack, StackKind

T = 6
CAUSAL = torch.ones(T, T, dtype=torch.bool).tril()
NAMES = ("<s>", "a", "b", "c", "d", "e")


def layer(*maps: Tensor, keep: Tensor | None = None) -> Layer:
    weights = torch.stack(maps)
    keep = torch.ones(weights.shape[1:], dtype=torch.bool) if keep is None else keep
    return Layer("attention", weights, keep[None] if keep.dim() == 2 else keep)


def stack(*layers: Layer, kind: StackKind = "self") -> Stack:
    rows, columns = layers[0].weights.shape[1:]
    return Stack(kind, layers, NAMES[:rows], NAMES[:columns], ("read", "reading"))


def pointing(*keys: int, width: int = T) -> Tensor:
    """Each query gives all its weight to one key."""
    return torch.eye(width)[list(keys)]


def judged(weights: Tensor, keep: Tensor | None = None) -> Head:
    (head,) = head_facts(layer(weights, keep=keep), NAMES)
    return head


def test_equal_weights_are_uniform() -> None:
    head = judged(torch.full((T, T), 1 / T))
    assert head.entropy == pytest.approx(math.log(T)) and head.share == pytest.approx(1)
    assert head.state == "uniform"
    assert head.note == "looks at every allowed token alike: entropy 100.0 % of the most possible"


def test_only_the_keys_that_the_mask_leaves_free_count() -> None:
    causal = torch.zeros(T, T).masked_fill(~CAUSAL, -torch.inf).softmax(-1)
    assert judged(causal, CAUSAL).state == "uniform"
    # the wrong twin: without the mask the same weights are far from uniform
    assert judged(causal).state == "" and judged(causal).share < 0.8
    assert judged(causal, CAUSAL).entropy == pytest.approx(sum(math.log(n) for n in range(2, 7)) / 5)


@pytest.mark.parametrize(
    ("weights", "note"),
    [
        (pointing(0, 1, 2, 3, 4, 5), "only, always its own place: 100.0 % of its weight"),
        (pointing(0, 0, 1, 2, 3, 4), "only, always the place before: 100.0 % of its weight"),
        (pointing(1, 2, 3, 4, 5, 5), "only, always the place after: 100.0 % of its weight"),
        (pointing(3, 1, 4, 0, 5, 2), "only: 100.0 % of its weight"),
    ],
)
def test_one_key_for_each_query_is_one_hot_and_the_pattern_is_told(weights: Tensor, note: str) -> None:
    head = judged(weights)
    assert (head.state, head.entropy, head.share) == ("one-hot", 0, 0)
    assert head.note == f"each query looks at one token {note}"


def test_one_same_key_for_all_is_dead_and_named() -> None:
    head = judged(pointing(0, 0, 0, 0, 0, 0))
    assert head.state == "dead"
    assert head.note == "every query looks at the same token 1 (<s>): 100.0 % of its weight"
    assert head_facts(layer(pointing(0, 0, 0, 0, 0, 0)))[0].note.startswith(
        "every query looks at the same token 1:"
    )


@pytest.mark.parametrize(("most", "state"), [(0.96, "dead"), (0.94, "")])
def test_thresholds_hold_for_the_mean_over_queries(most: float, state: str) -> None:
    weights = torch.full((T, T), (1 - most) / (T - 1))
    weights[:, 2] = most
    assert judged(weights).state == state
    turned = torch.stack([weights[0].roll(n) for n in (0, 2, 1, 5, 3, 4)])
    assert judged(turned).state == ("one-hot" if state else "")


def test_a_pattern_without_a_collapse_is_told() -> None:
    head = judged(0.7 * pointing(0, 0, 1, 2, 3, 4) + 0.3 / T)
    assert head.state == "" and head.note == "mostly the place before: 75.0 % of the weight"
    assert judged(torch.randn(T, T).softmax(-1)).note == ""


def test_padding_is_no_query() -> None:
    """Padded queries look at the first token, real ones at their own."""
    keep = torch.ones(T, T, dtype=torch.bool)
    keep[:, 4:] = False
    assert judged(pointing(0, 1, 2, 3, 0, 0), keep).note.endswith(
        "always its own place: 100.0 % of its weight"
    )
    # where nothing is hidden, those two count
    assert "always" not in judged(pointing(0, 1, 2, 3, 0, 0)).note


def test_the_queries_of_a_cross_attention_are_no_keys() -> None:
    """As many of both, the last two keys padding: all six queries count, and none has a place of its own."""
    keep = torch.ones(T, T, dtype=torch.bool)
    keep[:, 4:] = False
    weights = pointing(0, 1, 2, 3, 0, 0)
    spread = torch.full((T, T), 0.25).masked_fill(~keep, 0)
    weights[4:] = spread[4:]
    (cross,) = head_facts(layer(weights, keep=keep), NAMES, "cross")
    assert cross.entropy == pytest.approx(2 / 6 * math.log(4)) and "own place" not in cross.note
    (own,) = head_facts(layer(weights, keep=keep), NAMES, "encoder")
    assert own.entropy == 0 and "own place" in own.note


def test_short_texts_are_never_called_collapsed() -> None:
    for weights in (torch.full((2, 2), 0.5), torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])):
        assert judged(weights).state == ""
    alone = judged(torch.ones(3, 1))
    assert (alone.entropy, alone.share, alone.state) == (0, 0, "")
    assert "no query has a choice" in alone.note
    # one query cannot tell one key from the same key
    assert judged(pointing(2)).state == "one-hot"


def test_weight_that_goes_to_no_key_is_told() -> None:
    head = judged(torch.full((T, T), 0.01 / T))
    assert (
        head.state == "dead" and head.note == "looks at nothing: what takes 99.0 % of its weight is no token"
    )
    assert judged(torch.full((T, T), 0.5 / T)).state == "uniform"  # of what it gives to keys


def test_nan_is_not_judged() -> None:
    head = judged(torch.full((T, T), torch.nan))
    assert math.isnan(head.entropy) and math.isnan(head.share)
    assert head.state == "" and "NaN" in head.note
    # where a query may look nowhere, NaN is the mask's fault and says nothing of the head
    weights, keep = torch.full((T, T), 1 / T), torch.ones(T, T, dtype=torch.bool)
    weights[0], keep[0] = torch.nan, False
    assert judged(weights.masked_fill(~keep, 0), keep).state == "uniform"


def test_law_permuting_heads_permutes_the_facts() -> None:
    maps = [torch.full((T, T), 1 / T), pointing(0, 0, 0, 0, 0, 0), torch.randn(T, T).softmax(-1)]
    facts = head_facts(layer(*maps))
    assert head_facts(layer(*maps[::-1])) == facts[::-1]
    assert [head.state for head in facts] == ["uniform", "dead", ""]


def test_heads_may_have_masks_of_their_own() -> None:
    keep = torch.stack([CAUSAL, torch.ones(T, T, dtype=torch.bool)])
    causal = torch.zeros(T, T).masked_fill(~CAUSAL, -torch.inf).softmax(-1)
    assert [head.state for head in head_facts(layer(causal, causal, keep=keep))] == ["uniform", ""]


def test_means() -> None:
    one, two = torch.randn(2, T, T).softmax(-1), torch.randn(3, T, T).softmax(-1)
    layers = layer(*one), layer(*two)
    torch.testing.assert_close(mean_over_heads(layers[1]), (two[0] + two[1] + two[2]) / 3)
    torch.testing.assert_close(mean_over_layers(stack(*layers)), (one.mean(0) + two.mean(0)) / 2)


def test_rollout_is_the_papers_product() -> None:
    maps = [torch.randn(2, T, T, dtype=torch.float64).softmax(-1) for _ in range(3)]
    reached = rollout(stack(*(layer(*each) for each in maps)))
    expected = torch.eye(T, dtype=torch.float64)
    for each, found in zip(maps, reached, strict=True):
        mixed = each.mean(0) + torch.eye(T, dtype=torch.float64)
        expected = mixed / mixed.sum(-1, keepdim=True) @ expected
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(found.sum(-1), torch.ones(T, dtype=torch.float64))
    # the wrong twin: multiplied up in the other order
    first, second = reached[0], reached[1] @ reached[0].inverse()
    torch.testing.assert_close(reached[1], second @ first)
    assert not torch.allclose(reached[1], first @ second, atol=1e-3)


def test_law_what_no_layer_may_look_at_reaches_nothing() -> None:
    causal = torch.randn(2, T, T).masked_fill(~CAUSAL, -torch.inf).softmax(-1)
    for reached in rollout(stack(layer(*causal, keep=CAUSAL), layer(*causal, keep=CAUSAL))):
        assert not reached.triu(1).any()
    nowhere = causal.clone()
    nowhere[:, 3] = 0  # a query that may look nowhere stays what it is
    assert torch.equal(rollout(stack(layer(*nowhere)))[0][3], torch.eye(T)[3])


@pytest.mark.parametrize(("kind", "shape"), [("cross", (T, T)), ("encoder", (4, T))])
def test_rollout_of_other_tokens_is_refused(kind: StackKind, shape: tuple[int, int]) -> None:
    given = stack(layer(torch.randn(shape).softmax(-1)), kind=kind)
    with pytest.raises(
        ConfigError, match=f"rollout multiplies .* got {kind} attention of {shape[0]} queries over 6"
    ):
        rollout(given)
