"""What a run is made of: frozen dataclasses that refuse every combination that cannot work.

This package imports neither torch nor numpy, so that a mistyped option is answered at once.
A recipe (YAML) and the command line fill these classes; `RunConfig` is the whole of a recipe.
"""

from __future__ import annotations

from headwise.config.data import (
    LANGUAGES,
    DataConfig,
    DatesConfig,
    ImagesConfig,
    LabelledConfig,
    ParallelConfig,
    TextConfig,
)
from headwise.config.model import ModelConfig, PatchConfig, RotaryConfig
from headwise.config.rules import expanded
from headwise.config.run import RunConfig
from headwise.config.train import TrainConfig

__all__ = [
    "LANGUAGES",
    "DataConfig",
    "DatesConfig",
    "ImagesConfig",
    "LabelledConfig",
    "ModelConfig",
    "ParallelConfig",
    "PatchConfig",
    "RotaryConfig",
    "RunConfig",
    "TextConfig",
    "TrainConfig",
    "expanded",
]
