"""Every bad combination of training settings is refused; the defaults are the paper's."""

from __future__ import annotations

import math
from typing import Any

import pytest

from config_cases import refusal
from headwise.config import TrainConfig


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
        ({"threads": 1025}, "threads must be at most 1024: got 1025; one a core is usual"),
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
        ({"watch": "ter"}, "watch must be one of loss, bleu, accuracy: got 'ter'"),
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
    "settings",
    [
        {"warmup_steps": 0, "learning_rate": 1e-3},
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"warmup_steps": 11, "max_steps": 10},
        {"schedule": "cosine", "warmup_steps": 10, "max_steps": 10},
        {"seed": 2**63 - 1, "clip_norm": 0},
        {"threads": 1024},
    ],
)
def test_the_nearest_good_ones_are_not(settings: dict[str, Any]) -> None:
    TrainConfig(**settings)


def test_the_defaults_are_the_papers() -> None:
    train = TrainConfig()
    assert (train.beta1, train.beta2, train.adam_eps, train.warmup_steps) == (0.9, 0.98, 1e-9, 4_000)
    assert (train.label_smoothing, train.schedule, train.learning_rate) == (0.1, "inverse-sqrt", None)
