"""Every bad combination of a model's settings is refused, with what came and the way out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from config_cases import refusal
from headwise.config import ModelConfig, PatchConfig, RotaryConfig
from headwise.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"d_model": 512, "num_heads": 7},
            "num_heads must divide d_model: got d_model=512, num_heads=7; 8 divides it",
        ),
        (
            {"d_model": 12, "num_heads": 5},
            "num_heads must divide d_model: got d_model=12, num_heads=5; 4 divides it",
        ),
        (
            {"d_model": 2, "num_heads": 10**9},
            "num_heads must divide d_model: got d_model=2, num_heads=1000000000; 2 divides it",
        ),
        (
            {"d_model": 9, "num_heads": 3},
            "sinusoidal positions pair each sine with a cosine and need an even d_model: "
            "got 9; use 10 or positions=learned",
        ),
        (
            {"vocab_size": 100, "pad_id": 100},
            "pad_id must lie inside the vocabulary: got pad_id=100, vocab_size=100; ids run from 0 to 99",
        ),
        ({"pad_id": -1}, "pad_id must be at least 0: got -1"),
        ({"vocab_size": 100, "pad_id": -1}, "pad_id must be at least 0: got -1"),
        ({"vocab_size": 1}, "vocab_size must be at least 2: got 1"),
        ({"d_model": 0}, "d_model must be at least 1: got 0"),
        ({"num_heads": -8}, "num_heads must be at least 1: got -8"),
        ({"d_ff": 0}, "d_ff must be at least 1: got 0"),
        ({"num_encoder_layers": -1}, "num_encoder_layers must be at least 0: got -1"),
        ({"num_decoder_layers": -1}, "num_decoder_layers must be at least 0: got -1"),
        (
            {"num_encoder_layers": 0, "num_decoder_layers": 0},
            "a model needs at least one layer: got num_encoder_layers=0, num_decoder_layers=0; "
            "set one of them to 1 or more",
        ),
        ({"d_head": 0}, "d_head must be at least 1: got 0"),
        ({"num_kv_heads": 0}, "num_kv_heads must be at least 1: got 0"),
        (
            {"num_kv_heads": 3},
            "num_kv_heads must divide num_heads: got num_heads=8, num_kv_heads=3; 2 divides it",
        ),
        (
            {"num_kv_heads": 16},
            "num_kv_heads must divide num_heads: got num_heads=8, num_kv_heads=16; 8 divides it",
        ),
        (
            {"positions": "rotary", "d_model": 15, "num_heads": 3},
            "rotary positions turn pairs of coordinates and need an even width of 2 or more: got 5 of 5 "
            "coordinates a head; use another d_head, num_heads or rotary.share",
        ),
        (
            {"positions": "rotary", "d_head": 10, "rotary": RotaryConfig(share=0.5)},
            "rotary positions turn pairs of coordinates and need an even width of 2 or more: got 5 of 10 "
            "coordinates a head; use another d_head, num_heads or rotary.share",
        ),
        (  # nothing would turn
            {"positions": "rotary", "d_head": 4, "rotary": RotaryConfig(share=0.2)},
            "rotary positions turn pairs of coordinates and need an even width of 2 or more: got 0 of 4 "
            "coordinates a head; use another d_head, num_heads or rotary.share",
        ),
        (
            {"positions": "relative", "relative_buckets": 3},
            "relative_buckets must be at least 4: got 3; 32 is T5's",
        ),
        (
            {"positions": "relative", "relative_distance": 16},
            "relative_distance must pass half of relative_buckets (the near distances have one each): got "
            "16 and 32; 128 and 32 are T5's",
        ),
        ({"window": 0}, "window must be at least 1: got 0"),
        ({"norm_kind": "batch"}, "norm_kind must be one of layer, rms: got 'batch'"),
        ({"pooling": "last"}, "pooling must be one of first, mean: got 'last'"),
        ({"pooling_activation": "gelu"}, "pooling_activation must be one of tanh, relu: got 'gelu'"),
        (
            {"parallel_blocks": True},
            "parallel_blocks needs norm=pre: got norm=post; nothing would normalise their common input",
        ),
        ({"num_segments": -1}, "num_segments must be at least 0: got -1"),
        ({"num_classes": 1}, "num_classes must be at least 2: got 1"),
        ({"max_length": 0}, "max_length must be at least 1: got 0"),
        ({"norm": "none"}, "norm must be one of post, pre: got 'none'"),
        ({"activation": "tanh"}, "activation must be one of relu, gelu, gelu-tanh, silu: got 'tanh'"),
        (
            {"positions": "binary"},
            "positions must be one of sinusoidal, learned, rotary, alibi, relative, none: got 'binary'",
        ),
        ({"output_gain": "two"}, "output_gain must be one of one, inverse-sqrt-heads: got 'two'"),
        ({"norm_eps": 0.0}, "norm_eps must lie between 0 and 1: got 0.0; 1e-5 is usual"),
        ({"norm_eps": math.nan}, "norm_eps must lie between 0 and 1: got nan; 1e-5 is usual"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1: got 1.0; 0 turns it off"),
        ({"dropout": math.nan}, "dropout must be at least 0 and below 1: got nan; 0 turns it off"),
        (
            {"attention_dropout": -0.1},
            "attention_dropout must be at least 0 and below 1: got -0.1; 0 turns it off",
        ),
        (
            {"feedforward_dropout": 1.5},
            "feedforward_dropout must be at least 0 and below 1: got 1.5; 0 turns it off",
        ),
    ],
)
def test_bad_models_are_refused(settings: dict[str, Any], message: str) -> None:
    assert refusal(ModelConfig, settings) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"base": 1.0}, "rotary.base must be above 1: got 1.0; 10000 is usual"),
        ({"base": math.inf}, "rotary.base must be above 1: got inf; 10000 is usual"),
        ({"base": math.nan}, "rotary.base must be above 1: got nan; 10000 is usual"),
        ({"share": 0.0}, "rotary.share must lie in (0, 1]: got 0.0; 1 turns all"),
        ({"share": 1.5}, "rotary.share must lie in (0, 1]: got 1.5; 1 turns all"),
        (
            {"scaling": "dynamic"},
            "rotary.scaling must be one of none, linear, ntk, yarn, llama3: got 'dynamic'",
        ),
        ({"factor": 0.5}, "rotary.factor must be at least 1: got 0.5; 1 scales nothing"),
        ({"factor": math.inf}, "rotary.factor must be at least 1: got inf; 1 scales nothing"),
        ({"original_length": 0}, "original_length must be at least 1: got 0"),
        (
            {"slow_turns": 4.0, "fast_turns": 4.0},
            "rotary.slow_turns must be above 0 and below rotary.fast_turns: got 4.0 and 4.0; "
            "1 and 32 are YaRN's",
        ),
        (
            {"slow_turns": 0.0},
            "rotary.slow_turns must be above 0 and below rotary.fast_turns: got 0.0 and 32.0; "
            "1 and 32 are YaRN's",
        ),
        ({"attention_factor": 0.0}, "rotary.attention_factor must be above 0: got 0.0; leave it out"),
    ],
)
def test_bad_rotations_are_refused(settings: dict[str, Any], message: str) -> None:
    assert refusal(RotaryConfig, settings) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"height": 0}, "height must be at least 1: got 0"),
        ({"width": 0}, "width must be at least 1: got 0"),
        ({"size": 0}, "size must be at least 1: got 0"),
        ({"channels": 0}, "channels must be at least 1: got 0"),
        (
            {"height": 24, "width": 36, "size": 8},
            "patches.size must divide the image: got 8 for 24 x 36 pixels; 12 divides both sides",
        ),
    ],
)
def test_bad_patches_are_refused(settings: dict[str, Any], message: str) -> None:
    assert refusal(PatchConfig, settings) == message


def test_an_images_patches_are_counted() -> None:
    assert PatchConfig().count == 14 * 14
    assert PatchConfig(height=24, width=36, size=12).count == 2 * 3


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (ModelConfig, {"d_model": 9, "num_heads": 3, "positions": "learned"}),
        (ModelConfig, {"d_model": 512, "num_heads": 512}),
        (ModelConfig, {"vocab_size": 100, "pad_id": 99}),
        (ModelConfig, {"vocab_size": 100, "pad_id": None}),
        (ModelConfig, {"dropout": 0, "norm_eps": 1e-12}),
        (ModelConfig, {"num_encoder_layers": 0, "num_decoder_layers": 1}),
        (ModelConfig, {"num_encoder_layers": 1, "num_decoder_layers": 0}),
        (ModelConfig, {"d_model": 512, "num_heads": 7, "d_head": 64}),
        (ModelConfig, {"num_kv_heads": 1}),
        (ModelConfig, {"num_kv_heads": 8}),
        (ModelConfig, {"positions": "rotary", "d_model": 12, "num_heads": 6}),
        (ModelConfig, {"positions": "rotary", "d_head": 5, "rotary": RotaryConfig(share=0.4)}),
        (ModelConfig, {"positions": "alibi", "relative_buckets": 0, "relative_distance": 0}),
        (ModelConfig, {"positions": "relative", "relative_buckets": 4, "relative_distance": 3}),
        (ModelConfig, {"norm": "pre", "parallel_blocks": True}),
        (ModelConfig, {"window": 1, "num_segments": 1, "num_classes": 2}),
        (RotaryConfig, {"share": 1, "factor": 1, "base": 1.5, "slow_turns": 0.1, "fast_turns": 0.2}),
        (RotaryConfig, {"scaling": "yarn", "factor": 4.0, "attention_factor": 1.0}),
        (PatchConfig, {"height": 1, "width": 1, "size": 1, "channels": 1}),
    ],
)
def test_the_nearest_good_ones_are_not(kind: type, settings: dict[str, Any]) -> None:
    kind(**settings)


def test_the_defaults_are_the_papers_base_model() -> None:
    config = ModelConfig()
    assert (config.d_model, config.num_heads, config.width_ff, config.width_head) == (512, 8, 2048, 64)
    assert (config.num_encoder_layers, config.num_decoder_layers, config.dropout) == (6, 6, 0.1)
    assert (config.norm, config.activation, config.positions) == ("post", "relu", "sinusoidal")
    assert (config.norm_kind, config.gated, config.attention_bias) == ("layer", False, False)
    assert config.key_value_heads == config.num_heads


def test_d_ff_follows_d_model_unless_it_is_set() -> None:
    assert ModelConfig(d_model=64).width_ff == 256
    assert ModelConfig(d_model=64, d_ff=100).width_ff == 100


def test_d_head_follows_d_model_and_num_heads_unless_it_is_set() -> None:
    assert ModelConfig(d_model=64, num_heads=4).width_head == 16
    assert ModelConfig(d_model=64, num_heads=4, d_head=24).width_head == 24


@pytest.mark.parametrize(
    ("setting", "follows", "told"),
    [
        ("tie_output", "tie_embeddings", "ties_output"),
        ("attention_output_bias", "attention_bias", "has_attention_output_bias"),
    ],
)
def test_the_output_is_like_the_rest_unless_it_is_set(setting: str, follows: str, told: str) -> None:
    for rest in (True, False):
        assert getattr(ModelConfig(**{follows: rest}), told) is rest  # type: ignore[arg-type]
        for own in (True, False):
            assert getattr(ModelConfig(**{follows: rest, setting: own}), told) is own  # type: ignore[arg-type]


def test_key_value_heads_follow_num_heads_unless_they_are_set() -> None:
    assert ModelConfig(num_heads=4).key_value_heads == 4
    assert ModelConfig(num_heads=4, num_kv_heads=2).key_value_heads == 2


@pytest.mark.parametrize(("share", "width"), [(1.0, 64), (0.25, 16), (0.3, 19), (0.01, 0)])
def test_a_share_of_each_head_turns(share: float, width: int) -> None:
    assert ModelConfig(rotary=RotaryConfig(share=share)).width_turned == width


def test_a_head_too_wide_for_a_float_is_no_crash() -> None:
    config = ModelConfig(d_model=8 * 10**400, positions="rotary", rotary=RotaryConfig(share=0.5))
    assert config.width_turned == 2**52


def test_a_tokenizer_completes_a_model() -> None:
    assert ModelConfig().with_vocabulary(300, 4) == ModelConfig(vocab_size=300, pad_id=4)
    assert ModelConfig(vocab_size=300).with_vocabulary(300, 4).pad_id == 4
    with pytest.raises(ConfigError) as refused:
        ModelConfig(vocab_size=200).with_vocabulary(300, 4)
    assert str(refused.value) == (
        "model.vocab_size must equal the tokenizer's: got 200, the tokenizer has 300; "
        "leave model.vocab_size out and set data.vocab_size"
    )
