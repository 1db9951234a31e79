"""How the next token may be drawn; without torch, so that a mistyped option is answered at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headwise.errors import ConfigError


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn from the logits; the filters apply in this order.

    repetition_penalty: logits of tokens that stand in the text already are divided by it where positive,
        multiplied where negative (CTRL, section 4.1); 1 changes nothing.
    temperature: logits are divided by it; 0 takes the most probable token.
    top_k: only so many of the most probable tokens (Hierarchical Neural Story Generation, section 5.4).
    top_p: only the most probable tokens that reach this probability together (The Curious Case of Neural
        Text Degeneration, section 3.1).
    min_p: only tokens at least so probable as this share of the most probable one (Min-p Sampling).

    Errors: ConfigError for a value outside its range.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        penalty = self.repetition_penalty
        for name, value, fits, expected in (
            ("temperature", self.temperature, 0 <= self.temperature < math.inf, "at least 0; 1 is neutral"),
            ("top_k", self.top_k, self.top_k is None or self.top_k >= 1, "at least 1; 1 is greedy"),
            (
                "top_p",
                self.top_p,
                self.top_p is None or 0 < self.top_p <= 1,
                "above 0 and at most 1; 1 keeps all",
            ),
            ("min_p", self.min_p, self.min_p is None or 0 <= self.min_p <= 1, "between 0 and 1; 0 keeps all"),
            # a larger one would leave the range of float32
            ("repetition_penalty", penalty, 0.01 <= penalty <= 100, "between 0.01 and 100; 1 is neutral"),
        ):
            if not fits:
                limits, _, remedy = expected.partition("; ")
                raise ConfigError(f"{name} must be {limits}: got {value}; {remedy}")
