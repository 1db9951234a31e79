"""The decoder's stack against nn.TransformerDecoder with the same weights."""

from __future__ import annotations

import pytest
import torch

from headwise.config import ModelConfig
from headwise.model import attention
from headwise.model.cache import KeyValues
from headwise.model.decoder import Decoder
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.norm import LayerNorm
from headwise.model.relative import RelativeBias
from torch_layers import (
    STACKS,
    TOLERANCE,
    VISIBLE,
    WRONG_TWINS,
    Attend,
    right_padding,
    shaken,
    small_config,
    torch_decoder,
)


def difference(config: ModelConfig, training: bool) -> float:
    """Largest difference to nn.TransformerDecoder at the positions that are not padding."""
    ours = shaken(Decoder(config).double()).train(training)
    assert isinstance(ours, Decoder)
    theirs = torch_decoder(ours, config).train(training)
    x, memory = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 7, 12, dtype=torch.float64)
    real, source_real = right_padding([5, 3], 5), right_padding([4, 7], 7)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    mine = ours(x, ours.project_memory(memory), causal & real[:, None, None], source_real[:, None, None])
    other = theirs(
        x,
        memory,
        tgt_mask=~causal,
        tgt_key_padding_mask=~real,
        memory_key_padding_mask=~source_real,
    )
    return (mine - other)[real].abs().max().item()


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("stack", STACKS, ids=str)
@torch.no_grad()
def test_agrees_with_torch(stack: dict[str, object], training: bool) -> None:
    assert difference(small_config(**stack), training) < TOLERANCE


@pytest.mark.parametrize("twin", WRONG_TWINS.values(), ids=WRONG_TWINS.keys())
@pytest.mark.parametrize("norm", ["post", "pre"])
@torch.no_grad()
def test_a_wrong_twin_does_not(norm: str, twin: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "attend", twin)
    assert difference(small_config(norm=norm), training=False) > VISIBLE


def test_only_pre_norm_ends_in_a_norm() -> None:
    assert Decoder(small_config(norm="post")).final_norm is None
    decoder = Decoder(small_config(norm="pre"))
    assert isinstance(decoder.final_norm, LayerNorm)
    memory = decoder.project_memory(torch.randn(2, 7, 12) * 9)
    hidden = decoder(torch.randn(2, 5, 12) * 9, memory)
    assert (hidden.var(-1, unbiased=False) - 1).abs().max() < 1e-3


def test_each_block_projects_the_memory_with_its_own_weights() -> None:
    decoder = Decoder(small_config(num_decoder_layers=3))
    pairs = decoder.project_memory(torch.randn(2, 7, 12))
    assert len(pairs) == 3
    assert all(k.shape == v.shape == (2, 3, 7, 4) for k, v in pairs)
    assert not torch.equal(pairs[0][0], pairs[1][0])


class Wrapped(torch.nn.Module):
    """What torch.compile makes of a block: another class that passes everything on."""

    def __init__(self, block: torch.nn.Module) -> None:
        super().__init__()
        self.block = block
        self.cross_attention = block.cross_attention

    def forward(self, *given: object) -> object:
        return self.block(*given)


def test_a_wrapped_block_still_counts() -> None:
    model = EncoderDecoder(ModelConfig(vocab_size=11, d_model=8, num_heads=2, num_decoder_layers=2)).eval()
    source, target = torch.randint(1, 11, (2, 5)), torch.randint(1, 11, (2, 4))
    expected = model(source, target)
    model.decoder.blocks[0] = Wrapped(model.decoder.blocks[0])
    assert torch.equal(model(source, target), expected)


@pytest.mark.parametrize("scheme", ["rotary", "alibi", "relative", "none"])
@torch.no_grad()
def test_distances_go_on_after_what_is_cached(scheme: str) -> None:
    decoder = Decoder(small_config(positions=scheme, num_kv_heads=1, qk_norm=True)).double()
    for parameter in decoder.distance_positions.parameters():
        torch.nn.init.normal_(parameter)
    x, memory = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 7, 12, dtype=torch.float64)
    keep, pairs = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril(), decoder.project_memory(memory)
    whole = decoder(x, pairs, keep)
    caches, parts = [KeyValues() for _ in decoder.blocks], []
    for start, end in ((0, 3), (3, 4), (4, 5)):
        part = decoder(x[:, start:end], pairs, keep[:, :, start:end, :end], None, caches)
        parts.append(part)
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-12
    # the source has no order of its own here: cross-attention knows no distance
    order = torch.randperm(7)
    assert (decoder(x, decoder.project_memory(memory[:, order]), keep) - whole).abs().max() < 1e-12
    moved = (decoder(x.flip(1), pairs) - decoder(x, pairs).flip(1)).abs().max()
    assert (moved < 1e-12) if scheme in ("none", "alibi") else (moved > VISIBLE)


def test_its_relative_positions_are_causal() -> None:
    bias = Decoder(small_config(positions="relative")).distance_positions.bias
    assert isinstance(bias, RelativeBias) and bias.is_causal
