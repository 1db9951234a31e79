"""What may be asked of sampling; that it needs no torch is tested with the command line."""

from __future__ import annotations

import math

import pytest

from headwise.decode.sampling import Sampling
from headwise.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("temperature", -0.1, "temperature must be at least 0: got -0.1; 1 is neutral"),
        ("temperature", math.nan, "temperature must be at least 0: got nan"),
        ("temperature", math.inf, "temperature must be at least 0: got inf"),
        ("top_k", 0, "top_k must be at least 1: got 0; 1 is greedy"),
        ("top_p", 0.0, "top_p must be above 0 and at most 1: got 0.0; 1 keeps all"),
        ("top_p", 1.1, "top_p must be above 0 and at most 1: got 1.1"),
        ("min_p", -0.1, "min_p must be between 0 and 1: got -0.1; 0 keeps all"),
        ("min_p", math.nan, "min_p must be between 0 and 1: got nan"),
        ("repetition_penalty", 0.0, "repetition_penalty must be between 0.01 and 100: got 0.0; 1 is neutral"),
        ("repetition_penalty", 1e30, "repetition_penalty must be between 0.01 and 100: got 1e"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, value: float, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Sampling(**{name: value})  # type: ignore[arg-type]


def test_the_ends_of_each_range_are_inside() -> None:
    Sampling(0.0, 1, 1.0, 0.0, 0.01)
    Sampling(1e300, 10**9, 1e-9, 1.0, 100.0)
