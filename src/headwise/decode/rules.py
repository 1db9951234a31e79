"""What every search obeys: how long it may write, what it may never write, and a model at rest."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headwise.data.padding import Marks
from headwise.errors import ConfigError
from headwise.model.encoder_decoder import EncoderDecoder


def length_limits(
    model: EncoderDecoder, source: Int[Tensor, "B Ts"], max_length: int | Int[Tensor, " B"]
) -> Int[Tensor, " B"]:
    """Tokens that each sentence may write, the end mark counted; one number stands for all sentences.

    Errors: ConfigError for a limit below 1, or past what learned positions reach.
    """
    limits = torch.as_tensor(max_length, device=source.device).expand(source.size(0))
    if limits.numel() and int(limits.min()) < 1:
        raise ConfigError(f"max_length must be at least 1: got {int(limits.min())}")
    reach = model.config.max_length
    if model.config.positions == "learned" and limits.numel() and int(limits.max()) > reach:
        raise ConfigError(
            f"max_length must not pass the model's learned positions: got {int(limits.max())}, the model "
            f"has {reach}; ask for {reach} or less, or train with a larger model.max_length"
        )
    return limits


def forbid_marks(logits: Float[Tensor, "N V"], marks: Marks) -> None:
    """Padding and the begin mark are never written: their logits become -inf, in place.

    Log-probabilities are taken before this, so that they stay the model's own.
    """
    logits[:, marks.pad_id] = -torch.inf
    logits[:, marks.bos_id] = -torch.inf


def to_lists(values: Tensor) -> Any:
    """Nested lists of numbers (torch's annotation does not say of what, this one leaves it to the caller)."""
    return cast("Any", values).tolist()


@contextmanager
def evaluating(model: EncoderDecoder) -> Generator[None]:
    """No dropout and no gradients inside; every part's mode comes back afterwards.

    Law: draws no random number, so a training that pauses to translate goes on as if it had not.
    """
    was_training = {part: part.training for part in model.modules()}
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for part, mode in was_training.items():
            part.training = mode
