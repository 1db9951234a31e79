"""What holds for every configuration: frozen, explained, and built or refused in one line."""

from __future__ import annotations

import inspect
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

from config_cases import KINDS, build
from headwise.config import ModelConfig
from headwise.config.rules import at_least, expanded, one_of, probability, require
from headwise.errors import ConfigError


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
    lines = (inspect.getdoc(kind) or "").partition("\nArgs:\n")[2].splitlines()
    explained = [
        line.split(":")[0].strip() for line in lines if not line.startswith(" " * 8)
    ]  # a line's rest
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
        return st.lists(st.sampled_from(["de", "zh", "fr", "ja", "en", "", "x.txt"]), max_size=5).map(tuple)
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
            assert config.d_head is not None or config.width_head * config.num_heads == config.d_model
            assert config.width_head >= 1 and config.width_ff >= 1 and config.key_value_heads >= 1

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
        ("ModelConfig(positions='rotary', rotary=None)", "rotary must be a RotaryConfig: got None"),
        ("ModelConfig(patches=None)", "patches must be a PatchConfig: got None"),
        ("ModelConfig(rotary={'base': 5})", "rotary must be a RotaryConfig: got {'base': 5}"),
        ("RunConfig(train=None)", "train must be a TrainConfig: got None"),
        ("RunConfig(run=None)", "run must be text: got None"),
        (
            "TextConfig(files='input.txt')",
            "files must be a tuple of texts, such as ('a', 'b'): got 'input.txt'",
        ),
        ("TextConfig(files=(1,))", "files must be a tuple of texts, such as ('a', 'b'): got (1,)"),
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


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda: require(False, "a sentence"), "a sentence"),
        (lambda: at_least(2, first=3, second=1), "second must be at least 2: got 1"),
        (lambda: at_least(2, first=math.nan), "first must be at least 2: got nan"),
        (lambda: at_least(2, first=math.inf), "first must be at least 2: got inf"),
        (lambda: probability(rate=1), "rate must be at least 0 and below 1: got 1; 0 turns it off"),
        (lambda: one_of("kind", "c", ("a", "b")), "kind must be one of a, b: got 'c'"),
        (lambda: one_of("kind", "c" * 99, ("a",)), f"kind must be one of a: got '{'c' * 56}..."),
    ],
)
def test_each_rule_refuses_in_its_words(rule: typing.Callable[[], None], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rule()
    assert str(refused.value) == message


def test_each_rule_lets_its_edge_pass() -> None:
    require(True, "a sentence")
    at_least(2, first=2, second=10**400)
    probability(rate=0)
    one_of("kind", "b", ("a", "b"))


def test_a_path_is_taken_as_a_shell_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert expanded("~/runs/x") == Path("/home/somebody/runs/x")
    assert expanded("runs/~x") == Path("runs/~x")
    assert expanded("~no-such-user/x") == Path("~no-such-user/x")
