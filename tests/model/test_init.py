"""Every starting distribution, measured."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from headwise.model.attention import MultiHeadAttention
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.init import initialise, xavier_bound
from headwise.model.positions import LearnedPositions
from torch_layers import small_config

D, FF, V = 128, 256, 500


def model_of(**changes: object) -> EncoderDecoder:
    return EncoderDecoder(
        small_config(
            **{
                "d_model": D,
                "num_heads": 4,
                "d_ff": FF,
                "vocab_size": V,
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
                **changes,
            }
        )
    )


def is_uniform(weight: Tensor, bound: float) -> bool:
    """Uniform between -bound and bound: extent, mean, and the variance bound^2 / 3 within 5 sigma."""
    n = weight.numel()
    standard = bound / math.sqrt(3)
    # the variance of a uniform's square about its mean is 4 bound^4 / 45
    spread = 5 * math.sqrt(4 / 45 / n) * bound**2
    return (
        0.999 * bound < weight.abs().max() <= bound
        and abs(weight.mean()) < 5 * standard / math.sqrt(n)
        and abs(weight.square().mean() - standard**2) < spread
    )


def attentions(model: nn.Module) -> list[MultiHeadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def test_the_bound_is_glorots() -> None:
    assert xavier_bound(30, 20) == pytest.approx(math.sqrt(6 / 50), rel=1e-15)
    assert xavier_bound(30, 20, 0.5) == pytest.approx(math.sqrt(6 / 50) / 2, rel=1e-15)
    weight = nn.init.xavier_uniform_(torch.empty(200, 300))  # torch's has the same
    assert is_uniform(weight, xavier_bound(300, 200))


@torch.no_grad()
def test_query_key_and_value_each_by_their_own_fan() -> None:
    layers = attentions(model_of())
    assert len(layers) == 3
    for layer in layers:
        for part in layer.query_key_value.weight.chunk(3):
            assert is_uniform(part, math.sqrt(6 / (D + D)))


def test_the_fused_twin_is_too_small_by_the_root_of_two() -> None:
    fused = nn.init.xavier_uniform_(torch.empty(3 * D, D))
    for part in fused.chunk(3):
        assert not is_uniform(part, math.sqrt(6 / (D + D)))
        assert is_uniform(part, math.sqrt(6 / (D + D)) / math.sqrt(2))


@pytest.mark.parametrize(("gain", "factor"), [("one", 1.0), ("inverse-sqrt-heads", 0.5)])
@torch.no_grad()
def test_the_output_projections_gain(gain: str, factor: float) -> None:
    for layer in attentions(model_of(output_gain=gain)):
        assert is_uniform(layer.output.weight, factor * math.sqrt(6 / (D + D)))
        for part in layer.query_key_value.weight.chunk(3):  # the others keep gain 1
            assert is_uniform(part, math.sqrt(6 / (D + D)))


@torch.no_grad()
def test_feedforward_matrices() -> None:
    layer = model_of().encoder.blocks[0].feedforward
    assert is_uniform(layer.wide.weight, math.sqrt(6 / (D + FF)))
    assert is_uniform(layer.narrow.weight, math.sqrt(6 / (D + FF)))


@pytest.mark.parametrize(("is_tied", "is_scaled"), [(True, True), (False, True), (True, False)])
@torch.no_grad()
def test_embeddings_enter_with_variance_one(is_tied: bool, is_scaled: bool) -> None:
    model = model_of(tie_embeddings=is_tied, scale_embedding=is_scaled)
    for embedding in (model.source_embedding, model.target_embedding):
        vectors = embedding(torch.arange(V)[None])
        assert abs(vectors.mean()) < 5 / math.sqrt(V * D)
        assert abs(vectors.var() - 1) < 5 * math.sqrt(2 / (V * D))
        assert vectors.abs().max() > 3.5  # normal, not uniform
    assert embedding.table.weight.std().item() == pytest.approx(D**-0.5 if is_scaled else 1, rel=0.02)


@torch.no_grad()
def test_an_untied_output_is_drawn_by_its_own_fan() -> None:
    assert is_uniform(model_of(tie_embeddings=False).output.weight, math.sqrt(6 / (D + V)))


@torch.no_grad()
def test_learned_positions_start_small() -> None:
    model = model_of(positions="learned", max_length=200)
    tables = [module.table for module in model.modules() if isinstance(module, LearnedPositions)]
    assert len(tables) == 2
    assert all(table.std().item() == pytest.approx(0.02, rel=0.03) for table in tables)


def test_biases_are_zero_and_gains_one() -> None:
    model = model_of(attention_bias=True, norm="pre")
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    gains = [p for name, p in model.named_parameters() if name.endswith("gain")]
    assert len(biases) == 3 * 2 + 2 * 2 + len(gains)
    assert len(gains) == 2 + 3 + 2
    assert not any(bool(bias.any()) for bias in biases)
    assert all(bool((gain == 1).all()) for gain in gains)


@pytest.mark.parametrize(
    "changes", [{}, {"tie_embeddings": False, "attention_bias": True, "positions": "learned"}]
)
def test_every_parameter_is_drawn(changes: dict[str, object]) -> None:
    model = model_of(**changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    initialise(model, model.config)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


def test_a_parameter_that_the_table_does_not_know_is_named() -> None:
    model = model_of()
    model.decoder.register_parameter("temperature", nn.Parameter(torch.ones(1)))
    with pytest.raises(AssertionError, match=r"no starting distribution for decoder\.temperature"):
        initialise(model, model.config)


def test_the_seed_decides_everything() -> None:
    torch.manual_seed(5)
    one = model_of().state_dict()
    torch.manual_seed(5)
    other = model_of().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


@torch.no_grad()
def test_scores_start_with_variance_one() -> None:
    layer = attentions(model_of())[0]

    def variance_of_scores() -> float:
        x = torch.randn(4, 200, D)  # as a norm leaves it
        q, k, _ = (
            part.unflatten(-1, (4, -1)).transpose(1, 2) for part in layer.query_key_value(x).chunk(3, -1)
        )
        return (q @ k.transpose(-2, -1) / math.sqrt(D // 4)).var().item()

    assert variance_of_scores() == pytest.approx(1, abs=0.2)
    nn.init.xavier_uniform_(layer.query_key_value.weight)  # the fused twin: a quarter of it
    assert variance_of_scores() == pytest.approx(0.25, abs=0.05)
