"""The learning rate at each step: up in a line, then down along a curve."""

from __future__ import annotations

import math

from headwise.config import TrainConfig


def learning_rate(step: int, config: TrainConfig, d_model: int) -> float:
    """The rate of optimizer step `step`, counted from 1.

    inverse-sqrt:  peak * min(step / warmup, sqrt(warmup / step))
                   with the paper's peak d_model^-0.5 * warmup^-0.5 this is
                   d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)      Attention Is All You Need, eq. 3
    cosine:        peak * (final + (1 - final) * (1 + cos(pi * share)) / 2)    SGDR, eq. 5
                   where share runs from 0 at the end of warm-up to 1 at max_steps
    constant:      peak after warm-up
    """
    peak = peak_rate(config, d_model)
    if step < config.warmup_steps:
        return peak * step / config.warmup_steps
    if config.schedule == "inverse-sqrt":
        return peak * math.sqrt(max(config.warmup_steps, 1) / step)
    if config.schedule == "cosine":
        share = (step - config.warmup_steps) / max(config.max_steps - config.warmup_steps, 1)
        return peak * (
            config.final_rate + (1 - config.final_rate) * (1 + math.cos(math.pi * min(share, 1))) / 2
        )
    return peak


def peak_rate(config: TrainConfig, d_model: int) -> float:
    """The highest rate: the one that was set, or the paper's."""
    if config.learning_rate is not None:
        return config.learning_rate
    return d_model**-0.5 * config.warmup_steps**-0.5
