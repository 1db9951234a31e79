"""Every bad combination is refused, with what was expected, what came, and the way out."""

from __future__ import annotations

import math
import subprocess
import sys
import typing
from dataclasses import MISSING, FrozenInstanceError, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.config import DataConfig, DatesConfig, ModelConfig, ParallelConfig, RunConfig, TrainConfig
from headwise.errors import ConfigError

KINDS = [ModelConfig, DatesConfig, ParallelConfig, DataConfig, TrainConfig, RunConfig]


def build(kind: type, settings: dict[str, Any]) -> Any:
    """kind(**settings) as users have it: the tests' type checker would refuse a wrong word before we do."""
    config, default = object.__new__(kind), kind()
    for f in fields(kind):
        object.__setattr__(config, f.name, settings.get(f.name, getattr(default, f.name)))
    config.__post_init__()
    return config


def refusal(kind: type, settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        build(kind, settings)
    return str(refused.value)


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
        ({"num_encoder_layers": 0}, "num_encoder_layers must be at least 1: got 0"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be at least 1: got 0"),
        ({"max_length": 0}, "max_length must be at least 1: got 0"),
        ({"norm": "none"}, "norm must be one of post, pre: got 'none'"),
        ({"activation": "tanh"}, "activation must be one of relu, gelu: got 'tanh'"),
        ({"positions": "rotary"}, "positions must be one of sinusoidal, learned, none: got 'rotary'"),
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
        ({"max_steps": 0}, "max_steps must be at least 1: got 0"),
        ({"batch_tokens": 0}, "batch_tokens must be at least 1: got 0"),
        ({"accumulate": 0}, "accumulate must be at least 1: got 0"),
        ({"log_every": 0}, "log_every must be at least 1: got 0"),
        ({"validate_every": 0}, "validate_every must be at least 1: got 0"),
        ({"save_every": 0}, "save_every must be at least 1: got 0"),
        ({"average_last": 0}, "average_last must be at least 1: got 0"),
        ({"threads": 0}, "threads must be at least 1: got 0"),
        ({"seed": -1}, "seed must be at least 0: got -1"),
        ({"seed": 2**63}, "seed must be below 2**63: got 9223372036854775808"),
        ({"warmup_steps": -1}, "warmup_steps must be at least 0: got -1"),
        ({"patience": -1}, "patience must be at least 0: got -1"),
        ({"samples": -1}, "samples must be at least 0: got -1"),
        ({"clip_norm": -1.0}, "clip_norm must be at least 0: got -1.0"),
        ({"clip_norm": math.inf}, "clip_norm must be at least 0: got inf"),
        ({"weight_decay": math.nan}, "weight_decay must be at least 0: got nan"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0 and finite: got 0.0"),
        ({"learning_rate": math.nan}, "learning_rate must be above 0 and finite: got nan"),
        ({"learning_rate": math.inf}, "learning_rate must be above 0 and finite: got inf"),
        (
            {"warmup_steps": 0},
            "learning_rate can only be left out with a warm-up (the paper's rate is a function of "
            "warmup_steps): got warmup_steps=0; set learning_rate",
        ),
        ({"adam_eps": 0.0}, "adam_eps must lie between 0 and 1: got 0.0; 1e-9 is the paper's"),
        ({"beta1": 1.0}, "beta1 must be at least 0 and below 1: got 1.0; 0 turns it off"),
        ({"beta2": -0.5}, "beta2 must be at least 0 and below 1: got -0.5; 0 turns it off"),
        ({"label_smoothing": 1.0}, "label_smoothing must be at least 0 and below 1: got 1.0; 0 turns it off"),
        (
            {"final_rate": 1.5},
            "final_rate must lie between 0 and 1: got 1.5; 0.1 ends at a tenth of the highest",
        ),
        ({"optimizer": "sgd"}, "optimizer must be one of adam, adamw: got 'sgd'"),
        ({"schedule": "step"}, "schedule must be one of inverse-sqrt, cosine, constant: got 'step'"),
        ({"precision": "float16"}, "precision must be one of float32, bfloat16: got 'float16'"),
        ({"watch": "ter"}, "watch must be one of loss, bleu: got 'ter'"),
        (
            {"weight_decay": 0.1},
            "weight_decay needs optimizer=adamw (Adam would divide it by the second moment): "
            "got optimizer=adam, weight_decay=0.1",
        ),
        (
            {"schedule": "cosine", "warmup_steps": 11, "max_steps": 10},
            "warmup_steps must not pass max_steps: got warmup_steps=11, max_steps=10; "
            "the cosine schedule would never begin; lower warmup_steps",
        ),
    ],
)
def test_bad_trainings_are_refused(settings: dict[str, Any], message: str) -> None:
    assert refusal(TrainConfig, settings) == message


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (DatesConfig, {"languages": ()}, "languages must name at least one of de, zh, fr, ja: got none"),
        (DatesConfig, {"languages": ("de", "en")}, "languages must be one of de, zh, fr, ja: got 'en'"),
        (DatesConfig, {"languages": ("de", "de")}, "languages must differ from each other: got de, de"),
        (DatesConfig, {"train_size": 0}, "train_size must be at least 1: got 0"),
        (DatesConfig, {"validation_size": 0}, "validation_size must be at least 1: got 0"),
        (DatesConfig, {"test_size": 0}, "test_size must be at least 1: got 0"),
        (DatesConfig, {"seed": -1}, "seed must be at least 0: got -1"),
        (ParallelConfig, {"max_length": 1}, "max_length must be at least 2: got 1"),
        (DataConfig, {"kind": "csv"}, "data.kind must be one of dates, parallel: got 'csv'"),
        (DataConfig, {"vocab_size": 15}, "vocab_size must be at least 16: got 15"),
        (RunConfig, {"run": " "}, "run must name a directory: got an empty name; runs/NAME is usual"),
        (
            RunConfig,
            {"model": ModelConfig(max_length=64), "data": DataConfig(kind="parallel")},
            "data.parallel.max_length must not pass model.max_length: got 128 and 64; raise model.max_length",
        ),
    ],
)
def test_bad_data_and_runs_are_refused(kind: type, settings: dict[str, Any], message: str) -> None:
    assert refusal(kind, settings) == message


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (ModelConfig, {"d_model": 9, "num_heads": 3, "positions": "learned"}),
        (ModelConfig, {"d_model": 512, "num_heads": 512}),
        (ModelConfig, {"vocab_size": 100, "pad_id": 99}),
        (ModelConfig, {"dropout": 0, "norm_eps": 1e-12}),
        (TrainConfig, {"warmup_steps": 0, "learning_rate": 1e-3}),
        (TrainConfig, {"optimizer": "adamw", "weight_decay": 0.1}),
        (TrainConfig, {"warmup_steps": 11, "max_steps": 10}),
        (TrainConfig, {"schedule": "cosine", "warmup_steps": 10, "max_steps": 10}),
        (TrainConfig, {"seed": 2**63 - 1, "clip_norm": 0}),
        (RunConfig, {"model": ModelConfig(max_length=64)}),  # of dates, whatever data.parallel says
        (RunConfig, {"model": ModelConfig(max_length=128), "data": DataConfig(kind="parallel")}),
    ],
)
def test_the_nearest_good_ones_are_not(kind: type, settings: dict[str, Any]) -> None:
    kind(**settings)


def test_the_defaults_are_the_papers_base_model() -> None:
    config = ModelConfig()
    assert (config.d_model, config.num_heads, config.width_ff, config.d_head) == (512, 8, 2048, 64)
    assert (config.num_encoder_layers, config.num_decoder_layers, config.dropout) == (6, 6, 0.1)
    assert (config.norm, config.activation, config.positions) == ("post", "relu", "sinusoidal")
    train = TrainConfig()
    assert (train.beta1, train.beta2, train.adam_eps, train.warmup_steps) == (0.9, 0.98, 1e-9, 4_000)
    assert (train.label_smoothing, train.schedule, train.learning_rate) == (0.1, "inverse-sqrt", None)


def test_d_ff_follows_d_model_unless_it_is_set() -> None:
    assert ModelConfig(d_model=64).width_ff == 256
    assert ModelConfig(d_model=64, d_ff=100).width_ff == 100


def test_a_tokenizer_completes_a_model() -> None:
    assert ModelConfig().with_vocabulary(300, 4) == ModelConfig(vocab_size=300, pad_id=4)
    assert ModelConfig(vocab_size=300).with_vocabulary(300, 4).pad_id == 4
    with pytest.raises(ConfigError) as refused:
        ModelConfig(vocab_size=200).with_vocabulary(300, 4)
    assert str(refused.value) == (
        "model.vocab_size must equal the tokenizer's: got 200, the tokenizer has 300; "
        "leave model.vocab_size out and set data.vocab_size"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_is_frozen_comparable_and_complete(kind: type) -> None:
    config = kind()
    assert config == kind() and hash(config) == hash(kind())
    with pytest.raises(FrozenInstanceError):
        setattr(config, fields(kind)[0].name, None)
    assert all(f.default is not MISSING or f.default_factory is not MISSING for f in fields(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_is_explained(kind: type) -> None:
    """--help and the reference page are made of these lines."""
    assert kind.__doc__ is not None
    explained = [line.split(":")[0].strip() for line in kind.__doc__.partition("Args:\n")[2].splitlines()]
    assert [name for name in explained if name] == [f.name for f in fields(kind)]


# What the command line can hand over: values of the annotated types, however absurd.
NUMBERS = {
    int: st.one_of(st.integers(-3, 600), st.integers(), st.sampled_from([10**400, -(10**400), 2**63, 2**64])),
    float: st.one_of(st.floats(0, 1), st.floats(), st.integers(-2, 3)),
    bool: st.booleans(),
    str: st.one_of(st.text(max_size=5), st.sampled_from(["runs/x", "/", "."])),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is type(None):
        return st.none()
    if origin is Literal:
        return st.one_of(st.sampled_from(parts), st.text(max_size=3))
    if origin in (UnionType, typing.Union):
        return st.one_of(*map(values_of, parts))
    if origin is tuple:
        return st.lists(st.sampled_from(["de", "zh", "fr", "ja", "en", ""]), max_size=5).map(tuple)
    if kind in KINDS:
        return st.just(kind())
    return NUMBERS[kind]


def any_settings(kind: type) -> st.SearchStrategy[dict[str, Any]]:
    """Up to four settings at a time: with all of them most examples would stop at the first check."""
    values = {name: values_of(hint) for name, hint in sorted(typing.get_type_hints(kind).items())}
    return st.sets(st.sampled_from(list(values)), max_size=4).flatmap(
        lambda names: st.fixed_dictionaries({name: values[name] for name in sorted(names)})
    )


@pytest.mark.parametrize("kind", KINDS)
def test_any_settings_build_or_are_refused_in_one_line(kind: type) -> None:
    outcomes = set()

    @given(any_settings(kind))
    def try_them(settings: dict[str, Any]) -> None:
        try:
            config = build(kind, settings)
        except ConfigError as refused:
            outcomes.add("refused")
            assert len(str(refused).splitlines()) == 1
            assert ": got" in str(refused)
            return
        outcomes.add("built")
        if isinstance(config, ModelConfig):
            assert config.d_head * config.num_heads == config.d_model
            assert config.d_head >= 1 and config.width_ff >= 1

    try_them()
    assert outcomes == {"refused", "built"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("ModelConfig(d_model=16.0)", "d_model must be a whole number: got 16.0"),
        ("ModelConfig(num_encoder_layers=True)", "num_encoder_layers must be a whole number: got True"),
        ("ModelConfig(d_ff='64')", "d_ff must be a whole number: got '64'"),
        ("ModelConfig(dropout='0.1')", "dropout must be a number: got '0.1'"),
        ("ModelConfig(attention_bias=1)", "attention_bias must be True or False: got 1"),
        ("TrainConfig(learning_rate=None, clip_norm=None)", "clip_norm must be a number: got None"),
    ],
)
def test_a_wrong_type_is_refused(call: str, message: str) -> None:
    """In a process without the checks of the tests, which would refuse it first."""
    code = f"from headwise.config import *\ntry: {call}\nexcept ValueError as error: print(error)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == message


def test_a_whole_number_of_another_library_is_one() -> None:
    code = "import numpy, headwise\nprint(headwise.ModelConfig(d_model=numpy.int64(64)).d_model)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "64"


def test_a_tilde_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert RunConfig(run="~/runs/x").folder == Path("/home/somebody/runs/x")
    assert RunConfig(run="~no-such-user/x").folder == Path("~no-such-user/x")
