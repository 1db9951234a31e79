"""Text in, translations out: any number of lines, in bounded memory, in their order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

from headwise.data.padding import pad_sources
from headwise.data.tokenizer import Tokenizer
from headwise.decode.beam import beam_search, check_beam
from headwise.decode.greedy import greedy
from headwise.decode.rules import default_limit
from headwise.errors import ConfigError
from headwise.model.encoder_decoder import EncoderDecoder

WINDOW = 512

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Translation:
    """A translation and the score that ranks it, as `Hypothesis` has it; 0 for a text without words."""

    text: str
    score: float


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=2)


def _nothing() -> list[Translation]:
    return [Translation("", 0.0)]


class Translator:
    """A model and its tokenizer, as something that takes text.

    beam_size: hypotheses a sentence; 1 decodes greedily.
    length_penalty: alpha of score(Y) = log P(Y) / ((5 + |Y|) / 6)^alpha; 0 ranks by log P alone.
    max_length: most tokens of a translation, the end mark counted; left out, `default_limit` for each.
        Never more than the model's own max_length.
    batch_tokens: most positions of a batch: sentences * beam_size * longest source.
    warn: told once of the first text that is longer than the model's max_length and therefore cut, and
        at the end how many were.

    A text without anything but white space has the empty translation, and the model never sees it.

    Errors: ConfigError for a beam_size, max_length or batch_tokens below 1, a max_length that passes
    the model's, or a length_penalty below 0.
    Law: a translation depends on its text alone, not on what stands beside it in the batch.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: Tokenizer,
        *,
        beam_size: int = 5,
        length_penalty: float = 1.0,
        max_length: int | None = None,
        batch_tokens: int = 4_096,
        warn: Callable[[str], None] = _warn,
    ) -> None:
        check_beam(beam_size, length_penalty)
        reach = model.config.max_length
        if max_length is not None and not 1 <= max_length <= reach:
            raise ConfigError(
                f"max_length must lie between 1 and the model's max_length: got {max_length}, the model "
                f"has {reach}; for longer translations train with a larger model.max_length"
            )
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1: got {batch_tokens}; 4096 is usual")
        self._model = model
        self._tokenizer = tokenizer
        self._beam_size = beam_size
        self._length_penalty = length_penalty
        self._max_length = max_length
        self._batch_tokens = batch_tokens
        self._warn = warn

    def translate(self, texts: Sequence[str]) -> list[str]:
        """The best translation of each text."""
        return list(self.stream(texts, window=max(1, len(texts))))

    def n_best(self, texts: Sequence[str], n: int) -> list[list[Translation]]:
        """The n best translations of each text, best first, different as tokens.

        Fewer where fewer were found, and one for a text without anything to translate.
        Errors: ConfigError for n below 1 or above beam_size.
        """
        return list(self.stream_n_best(texts, n, window=max(1, len(texts))))

    def stream(self, lines: Iterable[str], window: int = WINDOW) -> Iterator[str]:
        """The best translation of each line, in order and without a line break.

        window: lines that are read, sorted by length and translated together. No more than these are
        held or read ahead; 1 answers each line before it reads the next.
        Law: line n of the output translates line n of the input.
        """
        return self._stream(lines, window, self._best, str)

    def stream_n_best(
        self, lines: Iterable[str], n: int, window: int = WINDOW
    ) -> Iterator[list[Translation]]:
        """The n best translations of each line: `stream` and `n_best` at once."""
        check_beam(self._beam_size, self._length_penalty, n)
        return self._stream(lines, window, lambda rows: self._n_best(rows, n), _nothing)

    def _stream(
        self,
        lines: Iterable[str],
        window: int,
        search: Callable[[list[list[int]]], list[_Found]],
        nothing: Callable[[], _Found],
    ) -> Iterator[_Found]:
        """What `search` finds for the ids of each line, and what `nothing` makes for a line without words."""
        if window < 1:
            raise ConfigError(
                f"window must be at least 1: got {window}; 1 answers each line before it reads the next"
            )
        return self._windows(iter(lines), window, search, nothing)

    def _windows(
        self,
        lines: Iterator[str],
        window: int,
        search: Callable[[list[list[int]]], list[_Found]],
        nothing: Callable[[], _Found],
    ) -> Iterator[_Found]:
        cuts = _Cuts(self._model.config.max_length, self._warn)
        read = 0
        while texts := [line.rstrip("\r\n") for line in islice(lines, window)]:
            filled = [place for place, text in enumerate(texts) if text.strip()]
            rows = self._tokenizer.encode([texts[place] for place in filled])
            rows = [cuts.cut(row, read + place + 1) for place, row in zip(filled, rows, strict=True)]
            found = [nothing() for _ in texts]
            for batch in self._batches([len(row) + 1 for row in rows]):
                for index, one in zip(batch, search([rows[index] for index in batch]), strict=True):
                    found[filled[index]] = one
            read += len(texts)
            yield from found
        cuts.sum_up()

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Places of rows of about equal length, as many as batch_tokens allows and at least one."""
        batch: list[int] = []
        for place in sorted(range(len(lengths)), key=lengths.__getitem__):
            # by rising length: the newest is the longest
            if batch and (len(batch) + 1) * self._beam_size * lengths[place] > self._batch_tokens:
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    def _best(self, rows: list[list[int]]) -> list[str]:
        if self._beam_size > 1:
            return [found[0].text for found in self._n_best(rows, 1)]
        # the same text without the log-probabilities that a score needs
        source, limits = self._tensors(rows)
        return self._decode(greedy(self._model, source, self._tokenizer, limits))

    def _n_best(self, rows: list[list[int]], n: int) -> list[list[Translation]]:
        source, limits = self._tensors(rows)
        found = beam_search(
            self._model, source, self._tokenizer, self._beam_size, limits, self._length_penalty, n
        )
        return [
            [
                Translation(text, hypothesis.score)
                for text, hypothesis in zip(self._decode([h.ids for h in row]), row, strict=True)
            ]
            for row in found
        ]

    def _tensors(self, rows: list[list[int]]) -> tuple[Int[Tensor, "B Ts"], Int[Tensor, " B"]]:
        """What the searches take: the sources, and how long each translation may be."""
        device = next(self._model.parameters()).device
        source = pad_sources(rows, self._tokenizer).to(device)
        limits = [self._max_length or default_limit(self._model, len(row) + 1) for row in rows]
        return source, torch.tensor(limits, device=device)

    def _decode(self, rows: list[list[int]]) -> list[str]:
        # a line break inside a translation would move every later line
        return [text.replace("\r", " ").replace("\n", " ") for text in self._tokenizer.decode(rows)]


class _Cuts:
    """Sources longer than the model was made for: cut, counted, told of."""

    def __init__(self, reach: int, warn: Callable[[str], None]) -> None:
        self._room = reach - 1  # the end mark takes one
        self._warn = warn
        self._count = 0

    def cut(self, row: list[int], line: int) -> list[int]:
        """The tokens that fit."""
        if len(row) > self._room:
            self._count += 1
            if self._count == 1:
                self._warn(
                    f"line {line} has {len(row)} tokens, the model reads {self._room}: the rest is left out"
                )
        return row[: self._room]

    def sum_up(self) -> None:
        """How many there were, when the first warning did not say it all."""
        if self._count > 1:
            self._warn(f"{self._count} lines had more than {self._room} tokens and were cut")
