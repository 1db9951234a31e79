"""Add & Norm in both places, and the worked example: every intermediate shape of a block."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headwise.model import attention
from headwise.model.attention import MultiHeadAttention, attend_with_weights
from headwise.model.block import DecoderBlock, EncoderBlock, ParallelBlock, Residual
from headwise.model.cache import KeyValues
from headwise.model.distance import DistancePositions
from headwise.model.norm import LayerNorm, RMSNorm
from headwise.model.positions import places_of
from torch_layers import VISIBLE, shaken, small_config

# The classic walk: batch 2, length 10, d_model 16, 4 heads; the source of the decoder's has length 7.
WALK = {"d_model": 16, "num_heads": 4, "d_ff": None}
VECTORS, HEADS, SCORES, WIDE = (2, 10, 16), (2, 4, 10, 4), (2, 4, 10, 10), (2, 10, 64)
SOURCE_HEADS, SOURCE_SCORES = (2, 4, 7, 4), (2, 4, 10, 7)


def split(x: Tensor) -> Tensor:
    return x.view(x.size(0), x.size(1), 4, 4).transpose(1, 2)


def walk_attention(
    layer: MultiHeadAttention, x: Tensor, memory: Tensor | None
) -> tuple[list[Tensor], Tensor]:
    """The steps of an attention layer as requirements.md names them, and what it returns."""
    source = x if memory is None else memory
    of_query, of_key, of_value = layer.query_key_value.weight.chunk(3)
    q, k, v = x @ of_query.T, source @ of_key.T, source @ of_value.T
    heads = [split(part) for part in (q, k, v)]
    scores = heads[0] @ heads[1].transpose(-2, -1) / math.sqrt(4)
    mixed = scores.softmax(-1) @ heads[2]
    merged = mixed.transpose(1, 2).contiguous().view(x.shape)
    projected = layer.output(merged)
    return [q, k, v, *heads, scores, mixed, merged, projected], projected


def walk_add_norm(residual: Residual, x: Tensor, projected: Tensor) -> tuple[list[Tensor], Tensor]:
    added = x + projected
    normed = residual.norm(added)
    return [added, normed], normed


def shapes(steps: list[Tensor]) -> list[tuple[int, ...]]:
    return [tuple(step.shape) for step in steps]


def test_worked_example_of_the_encoder_block() -> None:
    block = shaken(EncoderBlock(small_config(**WALK)))
    assert isinstance(block, EncoderBlock)
    x = torch.randn(VECTORS)
    first, projected = walk_attention(block.self_attention, x, None)
    second, normed = walk_add_norm(block.after_self_attention, x, projected)
    wide = block.feedforward.wide(normed).relu()
    narrow = block.feedforward.narrow(wide)
    third, result = walk_add_norm(block.after_feedforward, normed, narrow)
    steps = [x, *first, *second, wide, narrow, *third]
    assert shapes(steps) == [
        VECTORS,  # input
        *[VECTORS] * 3,  # Q, K, V
        *[HEADS] * 3,  # split
        SCORES,
        HEADS,  # softmax times V
        VECTORS,  # merge
        VECTORS,  # output projection
        VECTORS,  # add
        VECTORS,  # LayerNorm
        WIDE,  # feed-forward, inside
        VECTORS,  # feed-forward
        VECTORS,  # add
        VECTORS,  # LayerNorm
    ]
    # and these are the steps that the block takes
    assert (block(x) - result).abs().max() < 1e-5


def test_worked_example_of_the_decoder_block() -> None:
    block = shaken(DecoderBlock(small_config(**WALK)))
    assert isinstance(block, DecoderBlock)
    x, memory = torch.randn(VECTORS), torch.randn(2, 7, 16)
    first, projected = walk_attention(block.self_attention, x, None)
    second, looked_back = walk_add_norm(block.after_self_attention, x, projected)
    third, crossed = walk_attention(block.cross_attention, looked_back, memory)
    fourth, looked_across = walk_add_norm(block.after_cross_attention, looked_back, crossed)
    narrow = block.feedforward.narrow(block.feedforward.wide(looked_across).relu())
    fifth, result = walk_add_norm(block.after_feedforward, looked_across, narrow)
    assert shapes([*first, *second]) == [*[VECTORS] * 3, *[HEADS] * 3, SCORES, HEADS, *[VECTORS] * 4]
    assert shapes([*third, *fourth]) == [
        VECTORS,  # Q from the target
        *[(2, 7, 16)] * 2,  # K and V from the source
        HEADS,
        *[SOURCE_HEADS] * 2,
        SOURCE_SCORES,
        HEADS,
        *[VECTORS] * 4,
    ]
    assert shapes(fifth) == [VECTORS] * 2
    assert (block(x, block.cross_attention.project_memory(memory)) - result).abs().max() < 1e-5


def test_the_shapes_inside_as_the_module_itself_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk above recomputes; this one listens."""
    seen: list[tuple[str, tuple[int, ...]]] = []

    def listening(q: Tensor, k: Tensor, v: Tensor, *rest: Any, **given: Any) -> tuple[Tensor, Tensor]:
        seen.extend((name, tuple(part.shape)) for name, part in (("q", q), ("k", k), ("v", v)))
        mixed, weights = attend_with_weights(q, k, v, *rest, **given)
        seen.extend((name, tuple(part.shape)) for name, part in (("weights", weights), ("mixed", mixed)))
        return mixed, weights

    monkeypatch.setattr(attention, "attend_with_weights", listening)
    block = EncoderBlock(small_config(**WALK))
    names = {module: name for name, module in block.named_modules()}
    for module in names:
        if not list(module.children()):  # leaves
            module.register_forward_hook(
                lambda module, _, output: seen.append((names[module], tuple(output.shape)))
            )
    block.eval()(torch.randn(VECTORS))
    assert seen == [
        ("self_attention.query_key_value", (2, 10, 48)),
        ("q", HEADS),
        ("k", HEADS),
        ("v", HEADS),
        ("self_attention.weights_dropout", SCORES),
        ("weights", SCORES),
        ("mixed", HEADS),
        ("self_attention.output", VECTORS),
        ("after_self_attention.norm", VECTORS),
        ("feedforward.wide", WIDE),
        ("feedforward.dropout", WIDE),
        ("feedforward.narrow", VECTORS),
        ("after_feedforward.norm", VECTORS),
    ]


# Residual


def residual_of(norm: str, dropout: float = 0.0) -> Residual:
    residual = shaken(Residual(small_config(norm=norm, dropout=dropout)))
    assert isinstance(residual, Residual)
    return residual


def test_post_norm_normalises_the_sum() -> None:
    residual, x = residual_of("post"), torch.randn(2, 5, 12)
    expected = F.layer_norm(x + x.sin(), (12,), residual.norm.gain, residual.norm.bias)
    assert (residual(x, torch.sin) - expected).abs().max() < 1e-6


def test_pre_norm_leaves_the_sum_alone() -> None:
    residual, x = residual_of("pre"), torch.randn(2, 5, 12)
    expected = x + F.layer_norm(x, (12,), residual.norm.gain, residual.norm.bias).sin()
    assert (residual(x, torch.sin) - expected).abs().max() < 1e-6


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_falls_on_the_sublayer_and_never_on_the_residual(norm: str) -> None:
    residual, x = residual_of(norm, dropout=0.5), torch.randn(50, 20, 12)
    residual.norm = nn.Identity()  # type: ignore[assignment]
    added = residual(x, torch.ones_like) - x
    assert added.minimum((added - 2).abs()).abs().max() < 1e-5  # 0, or 1 / (1 - p)
    assert 0.97 < added.mean() < 1.03
    assert torch.equal(residual(x, torch.zeros_like), x)
    assert torch.equal(residual.eval()(x, torch.ones_like), x + 1)


@pytest.mark.parametrize("kind", [EncoderBlock, DecoderBlock])
def test_no_two_sublayers_share_a_norm(kind: type[EncoderBlock] | type[DecoderBlock]) -> None:
    block = kind(small_config())
    norms = [module for module in block.modules() if isinstance(module, LayerNorm)]
    residuals = [module for module in block.modules() if isinstance(module, Residual)]
    assert len(set(map(id, norms))) == len(norms) == len(residuals) == (2 if kind is EncoderBlock else 3)


def test_maps_are_filled_in_the_order_of_the_sublayers() -> None:
    block = DecoderBlock(small_config())
    memory = block.cross_attention.project_memory(torch.randn(2, 7, 12))
    own: list[Tensor] = []
    cross: list[Tensor] = []
    block(torch.randn(2, 5, 12), memory, self_maps=own, cross_maps=cross)
    assert shapes(own) == [(2, 3, 5, 5)]
    assert shapes(cross) == [(2, 3, 5, 7)]


# side by side


def parallel_block(**changes: object) -> ParallelBlock:
    block = shaken(ParallelBlock(small_config(norm="pre", parallel_blocks=True, **changes)).double())
    assert isinstance(block, ParallelBlock)
    return block


@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
def test_attention_and_feedforward_read_the_same_input(norm_kind: str) -> None:
    block, x = parallel_block(norm_kind=norm_kind), torch.randn(2, 5, 12, dtype=torch.float64)
    keep = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    looked = block.self_attention(block.attention_norm(x), keep)
    expected = x + looked + block.feedforward(block.feedforward_norm(x))
    assert (block(x, keep) - expected).abs().max() < 1e-12
    # wrong twins: one after the other, one norm for both
    in_turn = x + looked
    in_turn = in_turn + block.feedforward(block.feedforward_norm(in_turn))
    assert (block(x, keep) - in_turn).abs().max() > VISIBLE
    shared = x + looked + block.feedforward(block.attention_norm(x))
    assert (block(x, keep) - shared).abs().max() > VISIBLE


def test_dropout_falls_on_both_halves_and_never_on_the_residual() -> None:
    block = parallel_block(dropout=0.5)
    x = torch.randn(50, 20, 12, dtype=torch.float64)
    block.self_attention.forward = lambda x, *_, **__: torch.ones_like(x)  # type: ignore[method-assign]
    block.feedforward.forward = lambda x: 10 * torch.ones_like(x)  # type: ignore[method-assign]
    added = (block(x) - x).round().unique().tolist()
    assert added == [0, 2, 20, 22]  # each by itself
    assert (block.eval()(x) - x - 11).abs().max() < 1e-12


@pytest.mark.parametrize("kind", [EncoderBlock, ParallelBlock])
@pytest.mark.parametrize("positions", ["rotary", "alibi", "relative", "none"])
def test_a_block_with_a_cache_gives_what_the_whole_sequence_gives(
    positions: str, kind: type[EncoderBlock] | type[ParallelBlock]
) -> None:
    config = small_config(norm="pre", positions=positions, num_kv_heads=1)
    block, scheme = shaken(kind(config).double()), DistancePositions(config, is_causal=True).double()
    for parameter in scheme.parameters():
        nn.init.normal_(parameter)
    x, keep = torch.randn(2, 5, 12, dtype=torch.float64), torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    places = places_of(5, None)
    whole = block(x, keep, distances=scheme(places, 5, x.dtype))
    store, parts = KeyValues(), []
    for start, end in ((0, 3), (3, 4), (4, 5)):
        distances = scheme(places[:, start:end], end, x.dtype)
        parts.append(block(x[:, start:end], keep[:, :, start:end, :end], None, distances, store))
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-12


def test_the_parallel_block_gives_its_maps() -> None:
    maps: list[Tensor] = []
    parallel_block()(torch.randn(2, 5, 12, dtype=torch.float64), None, maps)
    assert shapes(maps) == [(2, 3, 5, 5)]


def test_the_configuration_decides_the_parts_of_every_block() -> None:
    config = small_config(norm="pre", norm_kind="rms", gated=True, qk_norm=True)
    for block in (EncoderBlock(config), ParallelBlock(config), DecoderBlock(config)):
        names = {type(module).__name__ for module in block.modules()}
        assert "GatedFeedForward" in names and "RMSNorm" in names
        assert not names & {"FeedForward", "LayerNorm"}
        assert isinstance(block.self_attention.query_norm, RMSNorm)
