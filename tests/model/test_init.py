"""Every starting distribution, measured."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headwise.config import ModelConfig, PatchConfig
from headwise.model.attention import MultiHeadAttention
from headwise.model.embed import InputEmbedding, PatchEmbedding, TokenEmbedding
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.feedforward import FeedForward, GatedFeedForward
from headwise.model.init import initialise, xavier_bound
from headwise.model.language_model import LanguageModel
from headwise.model.norm import LayerNorm, RMSNorm
from headwise.model.positions import LearnedPositions
from headwise.model.relative import RelativeBias
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier, TextEncoder
from headwise.model.vision import ImageClassifier
from model_configs import (
    IMAGE_MODELS,
    LANGUAGE_MODELS,
    TEXT_ENCODERS,
    image_config,
    language_config,
    text_config,
)
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


@pytest.mark.parametrize(("is_tied", "is_scaled"), [(True, True), (False, True), (False, False)])
@torch.no_grad()
def test_embeddings_enter_with_variance_one(is_tied: bool, is_scaled: bool) -> None:
    model = model_of(tie_embeddings=is_tied, scale_embedding=is_scaled)
    for embedding in (model.source_embedding, model.target_embedding):
        vectors = embedding(torch.arange(V)[None])
        assert abs(vectors.mean()) < 5 / math.sqrt(V * D)
        assert abs(vectors.var() - 1) < 5 * math.sqrt(2 / (V * D))
        assert vectors.abs().max() > 3.5  # normal, not uniform
    assert embedding.table.weight.std().item() == pytest.approx(D**-0.5 if is_scaled else 1, rel=0.02)


@pytest.mark.parametrize("is_scaled", [True, False])
@torch.no_grad()
def test_logits_of_a_tied_output_start_with_variance_one(is_scaled: bool) -> None:
    model = model_of(scale_embedding=is_scaled, norm="pre")  # what the last norm gives has variance 1
    logits = model(torch.randint(1, V, (4, 9)), torch.randint(1, V, (4, 200)))
    assert logits.std(-1).mean() == pytest.approx(1, rel=0.1)


@torch.no_grad()
def test_queries_take_the_place_of_a_scale_that_is_left_out() -> None:
    for layer in attentions(model_of(scale_attention=False)):
        q, *others = layer.query_key_value.weight.split(layer.widths)
        assert is_uniform(q, math.sqrt(6 / (D + D)) / math.sqrt(D // 4))
        assert all(is_uniform(part, math.sqrt(6 / (D + D))) for part in others)


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


# every kind of model


# matrices of many elements: is_uniform looks for the largest
LARGE_PATCHES = PatchConfig(height=24, width=16, size=8, channels=3)
WIDE = {"d_model": D, "num_heads": 4, "num_kv_heads": None, "d_head": None, "d_ff": FF}
ONE_STACK: dict[str, Callable[[], nn.Module]] = {
    **{
        f"language model like {name}": lambda name=name: LanguageModel(
            language_config(name, **{**WIDE, "num_kv_heads": 2, "vocab_size": V})
        )
        for name in LANGUAGE_MODELS
    },
    **{
        f"{kind.__name__} like {name}": lambda name=name, kind=kind: kind(
            text_config(name, **{**WIDE, "vocab_size": V, "num_classes": 200})
        )
        for name in TEXT_ENCODERS
        for kind in (TextEncoder, MaskedLanguageModel, TextClassifier)
    },
    **{
        f"image model like {name}": lambda name=name: ImageClassifier(
            image_config(name, **WIDE, max_length=200, num_classes=200, patches=LARGE_PATCHES)
        )
        for name in IMAGE_MODELS
    },
}


def is_normal(weight: Tensor, std: float) -> bool:
    """Mean and variance within 5 sigma, and longer tails than a uniform distribution has."""
    n = weight.numel()
    return (
        abs(weight.mean().item()) < 5 * std / math.sqrt(n)
        and abs(weight.square().mean().item() / std**2 - 1) < 5 * math.sqrt(2 / n)
        and (n < 1_000 or weight.abs().max().item() > 2.5 * std)
    )


def starts_as(weight: Tensor) -> str:
    """Which line of the table a matrix follows, by what is measured."""
    return "uniform" if is_uniform(weight, xavier_bound(weight.size(1), weight.size(0))) else "another"


@pytest.mark.parametrize("name", ONE_STACK)
@torch.no_grad()
def test_every_parameter_starts_as_the_table_says(name: str) -> None:
    """Each is measured by its place in the model, and none is left unmeasured."""
    model = ONE_STACK[name]()
    config: ModelConfig = model.config  # type: ignore[assignment]
    left = dict(model.named_parameters())
    of_name = {id(parameter): name for name, parameter in left.items()}

    def measured(*parameters: Tensor) -> None:
        for parameter in parameters:
            left.pop(of_name[id(parameter)], None)

    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            parts = [*module.query_key_value.weight.split(module.widths), module.output.weight]
            if not config.scale_attention:
                parts[0] = parts[0] * module.d_head**0.5
            assert [starts_as(part) for part in parts] == ["uniform"] * 4
            measured(module.query_key_value.weight, module.output.weight)
        elif isinstance(module, FeedForward | GatedFeedForward):
            halves = module.wide.weight.split(FF)
            assert len(halves) == 1 + config.gated
            assert {starts_as(part) for part in (*halves, module.narrow.weight)} == {"uniform"}
            measured(module.wide.weight, module.narrow.weight)
        elif isinstance(module, TokenEmbedding):
            has_output = isinstance(model, LanguageModel | MaskedLanguageModel)
            makes_logits = has_output and config.ties_output and not config.scale_output
            assert is_normal(module.table.weight, D**-0.5 if config.scale_embedding or makes_logits else 1.0)
            measured(module.table.weight)
        elif isinstance(module, InputEmbedding) and module.segments is not None:
            assert is_normal(module.segments.weight, 0.02)
            measured(module.segments.weight)
        elif isinstance(module, LearnedPositions | RelativeBias):
            assert is_normal(module.table, 0.02)
            measured(module.table)
        elif isinstance(module, PatchEmbedding):
            assert starts_as(module.project.weight) == "uniform"
            measured(module.project.weight)
            if module.class_token is not None:
                assert is_normal(module.class_token, 0.02)
                measured(module.class_token)
        elif isinstance(module, LayerNorm | RMSNorm):
            assert bool((module.gain == 1).all())
            measured(module.gain)
    for part in ("output", "body.output", "pool", "transform"):  # heads; a tied one was measured above
        if f"{part}.weight" in left:
            assert starts_as(left[f"{part}.weight"]) == "uniform"
            measured(left[f"{part}.weight"])
    biases = [parameter for name, parameter in left.items() if name.endswith("bias")]
    assert not any(bool(bias.any()) for bias in biases)
    measured(*biases)
    assert list(left) == []


@pytest.mark.parametrize("name", ONE_STACK)
def test_every_parameter_of_every_model_is_drawn(name: str) -> None:
    model = ONE_STACK[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    initialise(model, model.config)  # type: ignore[arg-type]
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())


@torch.no_grad()
def test_a_fused_gate_would_start_too_small() -> None:
    fused = nn.init.xavier_uniform_(torch.empty(2 * FF, D))
    assert all(starts_as(half) == "another" for half in fused.split(FF))


@pytest.mark.parametrize("is_tied", [True, False], ids=["tied", "untied"])
@torch.no_grad()
def test_an_output_is_the_embeddings_or_drawn_by_its_own_fan_and_its_bias_is_zero(is_tied: bool) -> None:
    changes = {**WIDE, "vocab_size": V, "tie_embeddings": is_tied, "output_bias": True}
    models: list[LanguageModel | MaskedLanguageModel | EncoderDecoder] = [
        LanguageModel(language_config(**changes)),
        MaskedLanguageModel(text_config("paper", **changes)),
        model_of(tie_embeddings=is_tied, output_bias=True),
    ]
    for model in models:
        assert is_normal(model.output.weight, D**-0.5) is is_tied
        assert is_uniform(model.output.weight, math.sqrt(6 / (D + V))) is not is_tied
        assert model.output.bias.shape == (V,) and not model.output.bias.any()
