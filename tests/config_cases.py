"""Settings as users have them, and the sentence in which a configuration refuses them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from headwise.config import ModelConfig, PatchConfig, RotaryConfig, RunConfig, TrainConfig
from headwise.config.data import (
    DataConfig,
    DatesConfig,
    ImagesConfig,
    LabelledConfig,
    ParallelConfig,
    TextConfig,
)
from headwise.errors import ConfigError

KINDS: list[type] = [
    ModelConfig,
    RotaryConfig,
    PatchConfig,
    DatesConfig,
    ParallelConfig,
    TextConfig,
    LabelledConfig,
    ImagesConfig,
    DataConfig,
    TrainConfig,
    RunConfig,
]


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
