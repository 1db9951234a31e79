"""Writing on: from a prompt, token by token, greedily or by lot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headwise.decode.rules import evaluating, to_lists
from headwise.decode.sampling import Sampling
from headwise.errors import ConfigError, DataError
from headwise.model.cache import TextCache
from headwise.model.language_model import LanguageModel


def next_tokens(
    logits: Float[Tensor, "B V"],
    sampling: Sampling,
    generator: torch.Generator | None = None,
    seen: Bool[Tensor, "B V"] | None = None,
) -> Int[Tensor, " B"]:
    """Draw the next token of each row.

    seen: True where a token stands in the row's text already; needed for a repetition penalty.
    Law: with temperature 0, or top_k 1, the token of the highest logit (the lower id of equal ones).
    """
    logits = logits.float()
    if sampling.repetition_penalty != 1 and seen is not None:
        penalty = torch.where(logits > 0, 1 / sampling.repetition_penalty, sampling.repetition_penalty)
        logits = torch.where(seen, logits * penalty, logits)  # [B, V]
    if sampling.temperature == 0:
        return logits.argmax(-1)
    # from the highest down, so that every filter keeps a beginning; stable, so that the lower id leads
    ordered, ids = logits.sort(dim=-1, descending=True, stable=True)
    # float64, and the highest at 0: no temperature, however small or large, makes a NaN
    ordered = ((ordered.double() - ordered[:, :1]) / sampling.temperature).float()  # [B, V]
    probability = ordered.softmax(-1)  # [B, V]
    kept = torch.ones_like(probability, dtype=torch.bool)  # [B, V]
    if sampling.top_k is not None:
        kept[:, sampling.top_k :] = False
        probability = _kept(probability, kept)
    if sampling.top_p is not None:
        before = probability.cumsum(-1) - probability  # [B, V]
        kept &= before < sampling.top_p
        kept[:, 0] = True
        probability = _kept(probability, kept)
    if sampling.min_p is not None:
        kept &= probability >= sampling.min_p * probability[:, :1]
        probability = _kept(probability, kept)
    drawn = torch.multinomial(probability, 1, generator=generator)  # [B, 1]
    return ids.gather(1, drawn).squeeze(1)


def _kept(probability: Tensor, kept: Tensor) -> Tensor:
    masked = probability * kept
    return masked / masked.sum(-1, keepdim=True)


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int] | Tensor] | Tensor,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    *,
    seed: int = 0,
    end_ids: Sequence[int] = (),
    forbidden_ids: Sequence[int] = (),
    on_tokens: Callable[[list[tuple[int, int]]], list[bool]] | None = None,
) -> list[list[int]]:
    """Continue each prompt; all of them at once, padded in front.

    prompts: token ids, at least one each: lists of numbers, tensors [T], or one tensor [B, T].
    max_new_tokens: most tokens to write for each.
    end_ids: a row that writes one of them has ended; it is not part of the answer.
    forbidden_ids: never written, such as padding.
    on_tokens: told of each step's (row, token) pairs; answers for each whether that row goes on.
    A row of max_length tokens goes on from the later half of them; all rows are then read anew.
    Returns the new ids of each row.

    Errors: ConfigError for no new tokens, a prompt without tokens, or prompts that are no rows of ids;
    DataError for an id that the vocabulary does not have.
    Law: greedy rows do not depend on their neighbours; the same seed gives the same text.
    """
    sampling = sampling or Sampling()
    if max_new_tokens < 1:
        raise ConfigError(f"max_new_tokens must be at least 1: got {max_new_tokens}; 200 is usual")
    texts = _rows_of_ids(prompts, model.config.vocab_size)
    if not texts:
        return []
    device = next(model.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    written: list[list[int]] = [[] for _ in texts]
    rows: list[int] = list(range(len(texts)))
    read = [_Context(prompt, model.config.max_length) for prompt in texts]  # of each row that goes on
    with evaluating(model):
        cache, logits = _start(model, read)
        seen = torch.zeros_like(logits, dtype=torch.bool)  # [B, V]
        for row, prompt in enumerate(texts):
            seen[row, prompt] = True
        for step in range(max_new_tokens):
            if forbidden_ids:
                logits[:, list(forbidden_ids)] = -torch.inf
            newest = next_tokens(logits, sampling, generator, seen)
            values: list[int] = to_lists(newest)
            goes_on = [value not in end_ids for value in values]
            news = [(row, value) for row, value, on in zip(rows, values, goes_on, strict=True) if on]
            for row, value in news:
                written[row].append(value)
            if on_tokens is not None and news:
                answers = iter(on_tokens(news))
                goes_on = [on and next(answers) for on in goes_on]
            if step == max_new_tokens - 1 or not any(goes_on):
                break
            seen.scatter_(1, newest[:, None], True)
            for context, value in zip(read, values, strict=True):
                context.append(value)
            if not all(goes_on):
                kept = [n for n, on in enumerate(goes_on) if on]
                left = torch.tensor(kept, device=device)  # [N]
                rows, read = [rows[n] for n in kept], [read[n] for n in kept]
                newest, seen = newest[left], seen[left]
                cache.select(left)
            if cache.length >= model.config.max_length:  # no row has read more than that
                cache, logits = _start(model, read)
            else:
                logits = model.step(newest[:, None], cache)
    return written


def _rows_of_ids(
    prompts: Sequence[Sequence[int] | Tensor] | Tensor, vocab_size: int | None
) -> list[list[int]]:
    """Each prompt as a list of numbers of the vocabulary."""
    rows = [_items(row, f"prompts[{place}]") for place, row in enumerate(_items(prompts, "prompts"))]
    return [[_id(value, place, vocab_size) for value in row] for place, row in enumerate(rows)]


def _items(value: object, name: str) -> list[Any]:
    """What stands in a row, at least one thing in each prompt; a single number or a text is no row."""
    if isinstance(value, Tensor):
        value = to_lists(value)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ConfigError(
            f"prompts must be rows of ids, such as [[5, 7], [4]], or a tensor [B, T]: got {_brief(value)} as "
            f"{name}; a prompt alone is [prompt], and a text is for Writer"
        )
    items = list(cast("Iterable[Any]", value))
    if not items and name != "prompts":
        raise ConfigError(
            f"every prompt must have at least one token: got an empty one, {name}; give it a begin mark"
        )
    return items


def _id(value: Any, place: int, vocab_size: int | None) -> int:
    try:
        token = index(value)
    except TypeError:
        token = None
    if token is None or isinstance(value, bool):
        raise ConfigError(
            f"prompts must be rows of whole numbers: got {_brief(value)} in prompts[{place}]; encode the "
            "text with the model's tokenizer, or use Writer"
        )
    if vocab_size is not None and not 0 <= token < vocab_size:
        raise DataError(
            f"every id must lie in the model's vocabulary, 0 to {vocab_size - 1}: got {token} in "
            f"prompts[{place}]; encode the text with the model's own tokenizer"
        )
    return token


def _brief(value: object) -> str:
    return " ".join(repr(value).split())[:60]


class _Context:
    """The tokens of a row that the model has in mind: never more than it can read, whatever stands beside."""

    def __init__(self, prompt: Sequence[int], reach: int) -> None:
        self.tokens, self._reach = list(prompt)[-reach:], reach

    def append(self, token: int) -> None:
        """One more; a full row keeps its later half."""
        if len(self.tokens) >= self._reach:
            del self.tokens[: len(self.tokens) + 1 - max(1, self._reach // 2)]
        self.tokens.append(token)


def _start(model: LanguageModel, read: Sequence[_Context]) -> tuple[TextCache, Float[Tensor, "B V"]]:
    """Read all rows anew."""
    cache = model.start()
    tokens, keep = _left_padded([context.tokens for context in read], next(model.parameters()).device)
    return cache, model.step(tokens, cache, keep)


def _left_padded(
    prompts: Sequence[Sequence[int]], device: torch.device
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Prompts that end together, so that all rows write at the same place."""
    longest = max(map(len, prompts))
    rows = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
    kept = [[False] * (longest - len(prompt)) + [True] * len(prompt) for prompt in prompts]
    return torch.tensor(rows, device=device), torch.tensor(kept, device=device)
