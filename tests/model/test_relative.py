"""T5's relative positions: the classes of its public code, and their laws."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise.model.relative import RelativeBias, distance_buckets
from torch_layers import VISIBLE, shaken, small_config


def distances(num_queries: int, num_keys: int) -> Tensor:
    keys = torch.arange(num_keys)
    return keys[None] - keys[num_keys - num_queries :, None]


def bias_of(is_causal: bool = False, **changes: object) -> RelativeBias:
    bias = RelativeBias(small_config(positions="relative", **changes), is_causal=is_causal).double()
    torch.nn.init.normal_(bias.table)
    return bias


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "both ways"])
@pytest.mark.parametrize(
    ("buckets", "farthest"), [(32, 128), (32, 20), (8, 9), (64, 1_000), (4, 3), (7, 50), (320, 800)]
)
def test_classes_are_those_of_t5(buckets: int, farthest: int, is_causal: bool) -> None:
    pytest.importorskip("transformers")
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-5_000, 5_001)[None]
    theirs = T5Attention._relative_position_bucket(
        distance, bidirectional=not is_causal, num_buckets=buckets, max_distance=farthest
    )
    ours = distance_buckets(distance, buckets, farthest, is_causal=is_causal)
    assert torch.equal(ours, theirs)
    assert ours.min() == 0 and ours.max() <= buckets - 1


def test_near_distances_have_a_class_each_and_far_ones_the_last() -> None:
    steps = distance_buckets(-torch.arange(300)[None], 32, 128, is_causal=True)[0]
    assert steps[:16].tolist() == list(range(16))
    assert bool((steps[1:] >= steps[:-1]).all())
    assert steps[127] == steps[128] == steps[299] == 31 and steps[100] < 31


def test_what_lies_ahead_has_classes_of_its_own_but_for_a_causal_stack() -> None:
    distance = torch.arange(-40, 41)[None]
    both = distance_buckets(distance, 32, 128, is_causal=False)[0]
    behind, ahead = both[:40].flip(0), both[41:]
    assert torch.equal(ahead, behind + 16)
    causal = distance_buckets(distance, 32, 128, is_causal=True)[0]
    assert not causal[40:].any() and bool(causal[:40].all())


@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "both ways"])
def test_the_bias_is_the_row_of_the_class_and_depends_on_the_distance_alone(is_causal: bool) -> None:
    bias = bias_of(is_causal)
    whole = bias(distances(50, 50), torch.float64)
    assert whole.shape == (1, 3, 50, 50)
    bucket = distance_buckets(distances(50, 50), 32, 128, is_causal=is_causal)
    for head in range(3):
        assert torch.equal(whole[0, head], bias.table[:, head][bucket])
    assert torch.equal(whole[..., 1:, 1:], whole[..., :-1, :-1])
    assert torch.equal(bias(distances(3, 50), torch.float64), whole[..., -3:, :])  # the last queries
    assert (whole - whole.transpose(-1, -2)).abs().max() > VISIBLE  # it knows before from after


def test_only_the_classes_that_were_met_are_learned() -> None:
    bias = bias_of(is_causal=True)
    bias(distances(3, 3), torch.float64).sum().backward()
    assert bias.table.grad is not None
    assert bias.table.grad.any(-1).nonzero().flatten().tolist() == [0, 1, 2]


def test_the_table_has_a_number_for_each_class_and_head() -> None:
    bias = shaken(bias_of(relative_buckets=8, relative_distance=20))
    assert [tuple(p.shape) for p in bias.parameters()] == [(8, 3)]
