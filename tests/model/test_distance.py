"""What a stack tells its blocks about distances: which scheme, and for which positions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headwise.model.alibi import Alibi
from headwise.model.distance import DistancePositions
from headwise.model.positions import places_of
from headwise.model.relative import RelativeBias
from torch_layers import VISIBLE, small_config


def positions_of(kind: str, is_causal: bool = True) -> DistancePositions:
    positions = DistancePositions(small_config(positions=kind), is_causal=is_causal)
    if isinstance(positions.bias, RelativeBias):
        torch.nn.init.normal_(positions.bias.table)
    return positions


def bias_of(positions: DistancePositions, places: Tensor, num_keys: int) -> Tensor:
    distances = positions(places, num_keys, torch.float64)
    assert distances is not None and distances.bias is not None and distances.turns is None
    return distances.bias


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "none"])
def test_schemes_that_add_to_the_embeddings_say_nothing_here(kind: str) -> None:
    positions = positions_of(kind)
    assert positions(places_of(5, None), 5, torch.float32) is None
    assert list(positions.parameters()) == [] and list(positions.buffers()) == []


def test_rotary_turns_the_queries_places_and_adds_no_bias() -> None:
    positions = positions_of("rotary")
    distances = positions(torch.tensor([[0, 0, 1], [0, 1, 2]]), 3, torch.float64)
    assert distances is not None and distances.bias is None and distances.turns is not None
    assert distances.turns.cosine.shape == distances.turns.sine.shape == (2, 1, 3, 4)
    assert distances.turns.cosine[1, 0, 2, 0].item() == pytest.approx(torch.tensor(2.0).double().cos().item())


@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_biases_are_of_the_last_queries_among_all_keys(kind: str) -> None:
    positions = positions_of(kind)
    whole = bias_of(positions, places_of(7, None), 7)
    assert whole.shape == (1, 3, 7, 7)
    assert torch.equal(bias_of(positions, places_of(7, None)[:, 5:], 7), whole[:, :, 5:])
    # the wrong twin: counted as if nothing stood before
    assert (bias_of(positions, places_of(2, None), 2) - whole[:, :, 5:, :2]).abs().max() > VISIBLE


@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_padding_in_front_moves_no_bias(kind: str) -> None:
    positions = positions_of(kind)
    padded = places_of(5, torch.tensor([[False, False, True, True, True]]))
    assert torch.equal(bias_of(positions, padded, 5), bias_of(positions, places_of(5, None), 5))


def test_each_kind_has_its_module() -> None:
    assert isinstance(positions_of("alibi").bias, Alibi)
    causal, both = (positions_of("relative", is_causal).bias for is_causal in (True, False))
    assert isinstance(causal, RelativeBias) and causal.is_causal
    assert isinstance(both, RelativeBias) and not both.is_causal


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["rotary", "alibi", "relative"])
def test_the_dtype_is_the_one_asked_for(kind: str, dtype: torch.dtype) -> None:
    distances = positions_of(kind)(places_of(3, None), 3, dtype)
    assert distances is not None
    given = distances.bias if distances.turns is None else distances.turns.sine
    assert given is not None and given.dtype == dtype
