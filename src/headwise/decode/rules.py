"""What every search obeys: how long it may write, what it may never write, and a model at rest."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

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
        raise ConfigError(
            f"max_length must be at least 1: got {int(limits.min())}; the end mark takes 1, each token 1 more"
        )
    reach = model.config.max_length
    if model.config.positions == "learned" and limits.numel() and int(limits.max()) > reach:
        raise ConfigError(
            f"max_length must not pass the model's learned positions: got {int(limits.max())}, the model "
            f"has {reach}; ask for {reach} or less, or train with a larger model.max_length"
        )
    return limits


def default_limit(model: EncoderDecoder, source_tokens: int) -> int:
    """Tokens that a sentence may write where nobody says: twice its source's and 20 more.

    source_tokens: with the end mark; so is the limit, which never passes the model's max_length.
    """
    return min(2 * source_tokens + 20, model.config.max_length)


def forbidden_ids(marks: Marks) -> list[int]:
    """Padding and the begin mark, each once: T5 and Marian begin with padding, BART with the end mark."""
    return sorted({marks.pad_id, marks.bos_id} - {marks.eos_id})


def forbid_marks(logits: Float[Tensor, "N V"], marks: Marks) -> None:
    """What is never written: the logits of `forbidden_ids` become -inf, in place.

    Whoever needs log-probabilities of the model itself keeps these logits first: see
    `beam._continuations`.
    """
    logits[:, forbidden_ids(marks)] = -torch.inf


def to_lists(values: Tensor) -> Any:
    """Nested lists of numbers (torch's annotation does not say of what, this one leaves it to the caller)."""
    return cast("Any", values).tolist()


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
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
