"""The encoder's stack against nn.TransformerEncoder with the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.config import ModelConfig
from headwise.model import attention
from headwise.model.block import EncoderBlock, ParallelBlock
from headwise.model.cache import KeyValues
from headwise.model.encoder import Encoder
from headwise.model.norm import LayerNorm, RMSNorm
from headwise.model.positions import places_of
from torch_layers import (
    STACKS,
    TOLERANCE,
    VISIBLE,
    WRONG_TWINS,
    Attend,
    right_padding,
    shaken,
    small_config,
    torch_encoder,
)


def difference(config: ModelConfig, training: bool, is_causal: bool = False) -> float:
    """Largest difference to nn.TransformerEncoder at the positions that are not padding."""
    ours = shaken(Encoder(config).double()).train(training)
    assert isinstance(ours, Encoder)
    theirs = torch_encoder(ours, config).train(training)
    x, real = torch.randn(2, 7, 12, dtype=torch.float64), right_padding([7, 4], 7)
    square = torch.ones(7, 7, dtype=torch.bool)
    square = square.tril() if is_causal else square
    mine = ours(x, square & real[:, None, None])
    other = theirs(x, mask=~square, src_key_padding_mask=~real)
    return (mine - other)[real].abs().max().item()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("is_causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("stack", STACKS, ids=str)
@torch.no_grad()
def test_agrees_with_torch(stack: dict[str, object], is_causal: bool, training: bool) -> None:
    assert difference(small_config(**stack), training, is_causal) < TOLERANCE


@pytest.mark.parametrize("twin", WRONG_TWINS.values(), ids=WRONG_TWINS.keys())
@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_a_wrong_twin_does_not(norm: str, twin: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attend", twin)
    assert difference(small_config(norm=norm), training=False) > VISIBLE


@torch.no_grad()
def test_nor_does_the_norm_in_the_other_place() -> None:
    ours = shaken(Encoder(small_config(norm="post")).double())
    assert isinstance(ours, Encoder)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    other = torch_encoder(ours, small_config(norm="pre"))(x)
    assert (ours(x) - other).abs().max() > VISIBLE


def test_only_pre_norm_ends_in_a_norm() -> None:
    assert Encoder(small_config(norm="post")).final_norm is None
    encoder = Encoder(small_config(norm="pre"))
    assert isinstance(encoder.final_norm, LayerNorm)
    assert (encoder(torch.randn(2, 5, 12) * 9).var(-1, unbiased=False) - 1).abs().max() < 1e-3


def test_maps_come_in_the_order_of_the_blocks() -> None:
    encoder = Encoder(small_config(num_encoder_layers=3))
    x = torch.randn(2, 5, 12)
    maps: list[Tensor] = []
    encoder(x, None, maps)
    assert [tuple(weights.shape) for weights in maps] == [(2, 3, 5, 5)] * 3
    first: list[Tensor] = []
    encoder.blocks[0](x, None, first)
    assert torch.equal(maps[0], first[0])


SCHEMES = ["rotary", "alibi", "relative", "none"]


def stack_of(is_causal: bool = False, **changes: object) -> Encoder:
    encoder = Encoder(small_config(**changes), is_causal=is_causal).double()
    for parameter in encoder.distance_positions.parameters():
        nn.init.normal_(parameter)
    return encoder


def test_a_causal_stack_has_the_decoders_layers_and_the_configuration_its_blocks() -> None:
    config = small_config(num_encoder_layers=1, num_decoder_layers=3)
    assert len(Encoder(config).blocks) == 1 and len(Encoder(config, is_causal=True).blocks) == 3
    for is_parallel, kind in ((False, EncoderBlock), (True, ParallelBlock)):
        encoder = Encoder(small_config(norm="pre", norm_kind="rms", parallel_blocks=is_parallel))
        assert all(type(block) is kind for block in encoder.blocks)
        assert isinstance(encoder.final_norm, RMSNorm)


@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_all_blocks_hear_of_the_same_distances(scheme: str) -> None:
    encoder, x = stack_of(positions=scheme), torch.randn(2, 7, 12, dtype=torch.float64)
    distances, expected = encoder.distance_positions(places_of(7, None), 7, x.dtype), x
    for block in encoder.blocks:
        expected = block(expected, None, None, distances)
    assert (encoder(x) - expected).abs().max() < 1e-12
    order = torch.randperm(7)
    moved = (encoder(x[:, order]) - encoder(x)[:, order]).abs().max()
    assert (moved < 1e-12) if scheme == "none" else (moved > VISIBLE)


@pytest.mark.parametrize("scheme", SCHEMES)
@torch.no_grad()
def test_places_and_caches_carry_on_where_they_stopped(scheme: str) -> None:
    encoder = stack_of(True, positions=scheme)
    x, keep = torch.randn(2, 7, 12, dtype=torch.float64), torch.ones(1, 1, 7, 7, dtype=torch.bool).tril()
    whole = encoder(x, keep)
    told, untold = ([KeyValues() for _ in encoder.blocks] for _ in range(2))
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    for start, end in ((0, 4), (4, 5), (5, 7)):
        part, seen = x[:, start:end], keep[:, :, start:end, :end]
        places = places_of(7, None)[:, start:end]
        parts[0].append(encoder(part, seen, places=places, caches=told))
        parts[1].append(encoder(part, seen, caches=untold))
    for each in parts:
        assert (torch.cat(each, dim=1) - whole).abs().max() < 1e-12


@torch.no_grad()
def test_places_move_rotary_positions_all_alike() -> None:
    encoder, x = stack_of(positions="rotary"), torch.randn(2, 7, 12, dtype=torch.float64)
    assert (encoder(x, places=torch.arange(40, 47)[None]) - encoder(x)).abs().max() < 1e-11
    assert (encoder(x, places=2 * torch.arange(7)[None]) - encoder(x)).abs().max() > VISIBLE
