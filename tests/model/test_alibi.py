"""ALiBi's slopes and biases: by hand, by law, and as Bloom has them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise.model.alibi import Alibi, alibi_slopes
from torch_layers import VISIBLE, small_config


def distances(num_queries: int, num_keys: int) -> Tensor:
    keys = torch.arange(num_keys)
    return keys[None] - keys[num_keys - num_queries :, None]


def test_slopes_of_eight_heads_are_the_papers() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]


@pytest.mark.parametrize("num_heads", [1, 2, 4, 16, 64])
def test_slopes_of_a_power_of_two_are_a_geometric_series(num_heads: int) -> None:
    slopes = alibi_slopes(num_heads)
    start = 2 ** (-8 / num_heads)
    expected = torch.tensor([start**i for i in range(1, num_heads + 1)], dtype=torch.float64)
    assert (slopes / expected - 1).abs().max() < 1e-12


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 6, 7, 8, 12, 15, 16, 20, 31, 112])
def test_slopes_are_those_of_bloom(num_heads: int) -> None:
    pytest.importorskip("transformers")
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    length = 6
    theirs = build_alibi_tensor(torch.ones(1, length), num_heads, torch.float32)  # [H, 1, T]
    ours = alibi_slopes(num_heads)
    assert (ours - theirs[:, 0, 1].double()).abs().max() < 1e-7
    # theirs counts from the first key, ours from the query: the softmax of a row sees no difference
    bias = Alibi(small_config(d_model=4 * num_heads, num_heads=num_heads, positions="alibi"))(
        distances(1, length), torch.float64
    )
    shift = bias[0] - theirs.double()
    assert (shift - shift[..., :1]).abs().max() < 1e-6


def test_the_bias_is_slope_times_distance_on_both_sides() -> None:
    bias = Alibi(small_config(positions="alibi"))(distances(4, 4), torch.float64)
    assert bias.shape == (1, 3, 4, 4)
    for head, slope in enumerate(alibi_slopes(3).tolist()):
        for i in range(4):
            for j in range(4):
                assert bias[0, head, i, j].item() == -slope * abs(i - j)


def test_it_depends_on_the_distance_alone() -> None:
    alibi = Alibi(small_config(positions="alibi"))
    whole = alibi(distances(9, 9), torch.float64)
    assert torch.equal(whole[..., 1:, 1:], whole[..., :-1, :-1])
    assert torch.equal(alibi(distances(2, 9), torch.float64), whole[..., -2:, :])  # the last queries
    assert (whole[..., 1:, :] - whole[..., :-1, :]).abs().max() > VISIBLE


def test_no_two_heads_have_the_same_slope_and_all_fall() -> None:
    for num_heads in range(1, 40):
        slopes = alibi_slopes(num_heads)
        assert slopes.shape == (num_heads,)
        assert len(set(slopes.tolist())) == num_heads and bool((slopes > 0).all())


def test_slopes_are_neither_saved_nor_learned() -> None:
    alibi = Alibi(small_config(positions="alibi"))
    assert alibi.state_dict() == {} and list(alibi.parameters()) == []
    assert alibi(distances(2, 2), torch.bfloat16).dtype == torch.bfloat16
