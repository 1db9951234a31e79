"""A text or a picture in, its class out: any number of them, in bounded memory, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headwise.data.images import read_picture
from headwise.data.padding import pad_rows
from headwise.data.text_tokenizer import TextTokenizer
from headwise.decode.rules import evaluating, to_lists
from headwise.errors import DataError
from headwise.model.text_encoder import TextClassifier
from headwise.model.vision import ImageClassifier

WINDOW = 64


@dataclass(frozen=True)
class Named:
    """The most probable class, by its place, and how probable the model takes it to be."""

    place: int
    probability: float


def text_ids(tokenizer: TextTokenizer, texts: Sequence[str], max_length: int) -> tuple[list[list[int]], int]:
    """Ids as a classifier reads them, the class mark first; and how many texts were cut."""
    begin = tokenizer.begin_id
    rows = [([] if begin is None else [begin]) + row for row in tokenizer.encode(texts)]
    return [row[:max_length] for row in rows], sum(len(row) > max_length for row in rows)


class TextNamer:
    """A text classifier and its tokenizer, as something that takes text.

    max_length: tokens that the model reads of a text. cut: texts so far that were longer.
    A text without anything but white space has no class.
    Law: a class depends on its text alone, not on what stands beside it in the batch.
    """

    def __init__(self, model: TextClassifier, tokenizer: TextTokenizer, max_length: int) -> None:
        self._model, self._tokenizer, self._max_length = model, tokenizer, max_length
        self.cut = 0

    def stream(self, texts: Iterable[str], window: int = WINDOW) -> Iterator[Named | None]:
        """The class of each text; no more than `window` of them are read ahead."""
        rest = iter(texts)
        while lines := list(islice(rest, window)):
            found = iter(self._named([line for line in lines if line.strip()]))
            for line in lines:
                yield next(found) if line.strip() else None

    def _named(self, texts: Sequence[str]) -> list[Named]:
        if not texts:
            return []
        rows, cut = text_ids(self._tokenizer, texts, self._max_length)
        self.cut += cut
        with evaluating(self._model):
            return _best(self._model(pad_rows(rows, cast(int, self._tokenizer.pad_id))))


class PictureNamer:
    """An image classifier, as something that takes files.

    Errors: DataError as read_picture, and for an empty name.
    """

    def __init__(self, model: ImageClassifier) -> None:
        self._model = model

    def stream(self, names: Iterable[str], window: int = WINDOW) -> Iterator[Named]:
        """The class of each picture; no more than `window` of them are read ahead."""
        rest = iter(names)
        while some := list(islice(rest, window)):
            if not all(name.strip() for name in some):
                raise DataError("every line must name a picture: got an empty line; drop it")
            images = np.stack([read_picture(Path(name), self._model.config.patches) for name in some])
            with evaluating(self._model):
                found = _best(self._model(torch.as_tensor(images)))
            yield from found


def _best(logits: Float[Tensor, "B C"]) -> list[Named]:
    highest = logits.float().softmax(-1).max(-1)
    pairs = zip(to_lists(highest.indices), to_lists(highest.values), strict=True)
    return [Named(place, probability) for place, probability in pairs]
