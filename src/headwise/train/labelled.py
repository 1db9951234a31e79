"""Learning to name the class of a text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.build import build_model
from headwise.checkpoint.run import RunFiles, write_classes
from headwise.config import RunConfig
from headwise.data.batches import Batches
from headwise.data.labelled import load_labelled
from headwise.data.padding import pad_rows
from headwise.data.text_tokenizer import CLASS, MASK, PADDING, TextTokenizer
from headwise.decode.classify import text_ids
from headwise.decode.rules import evaluating, to_lists
from headwise.evaluate.classes import ClassScores
from headwise.model.text_encoder import TextClassifier
from headwise.train.task import Shown, Task, Watch


@dataclass(frozen=True)
class ClassValidation:
    """Loss in nats an example, and what the named classes are worth."""

    loss: float
    scores: ClassScores
    samples: Sequence[str] = ()

    def metrics(self, prefix: str) -> dict[str, float]:
        """The numbers by name."""
        values = {"loss": self.loss, "accuracy": self.scores.accuracy, "macro_f1": self.scores.macro_f1}
        return {f"{prefix}_{name}": value for name, value in values.items()}

    def summary(self) -> str:
        """One line."""
        return (
            f"validation loss {self.loss:.4f}  accuracy {self.scores.accuracy:.2%}  "
            f"macro-F1 {self.scores.macro_f1:.2%}"
        )

    def watched(self, name: Watch) -> float:
        """Lower is better."""
        return -self.scores.accuracy if name == "accuracy" else self.loss


@dataclass(frozen=True)
class Examples:
    """Rows of token ids with their classes."""

    ids: list[list[int]]
    classes: list[int]


class Classification(Task):
    """What learning classes is, whatever they are classes of; a batch holds the inputs and their classes."""

    config: RunConfig

    def targets(self, batch: tuple[Tensor, Tensor]) -> int:
        """One a row."""
        return len(batch[1])

    def loss(self, batch: tuple[Tensor, Tensor], divisor: float) -> Tensor:
        """Smoothed cross-entropy of the classes."""
        smoothing = self.config.train.label_smoothing
        total = F.cross_entropy(self.forward(batch[0]), batch[1], label_smoothing=smoothing, reduction="sum")
        return total / divisor


class TextClassification(Classification):
    """The class of each text."""

    unit = "texts"

    def __init__(self, config: RunConfig, files: RunFiles, warn: Callable[[str], None]) -> None:
        self.config = config
        train, validation, self.classes = load_labelled(config.data.labelled, warn)
        if not files.tokenizer.exists():
            kind, size = config.data.labelled.tokens, config.data.vocab_size
            learnt = TextTokenizer.train(train.texts, kind, size, (PADDING, CLASS, MASK))
            learnt.save(files.tokenizer)
        write_classes(files, self.classes)
        self.tokenizer = TextTokenizer.load(files.tokenizer)
        place = {name: index for index, name in enumerate(self.classes)}
        parts: list[Examples] = []
        for name, part in (("train", train), ("validation", validation)):
            longest = config.data.labelled.max_length
            ids, cut = text_ids(self.tokenizer, part.texts, longest)
            if cut:
                warn(f"{name}: {cut} of {len(ids)} texts were cut: over {longest} tokens")
            parts.append(Examples(ids, [place[label] for label in part.labels]))
        self.train, self.held_out = parts
        self.batches, self.held_out_batches = (
            Batches(lengths, lengths, config.train.batch_tokens, config.train.seed)
            for lengths in ([len(row) for row in part.ids] for part in parts)
        )

    def make_model(self) -> TextClassifier:
        """An encoder with a head for the classes of the data."""
        self.model = cast(TextClassifier, build_model(self.config, self.tokenizer, self.classes))
        self.forward = self.model.forward
        return self.model

    def summary(self) -> str:
        """How many texts of how many classes."""
        return (
            f"vocabulary {self.tokenizer.vocab_size:,}, {len(self.train.ids):,} training texts of "
            f"{len(self.classes)} classes in {len(self.epoch(0)):,} batches an epoch, "
            f"{len(self.held_out.ids):,} validation texts"
        )

    def fingerprint(self) -> str:
        """Of the ids and the classes."""
        content = [self.classes, *([part.ids, part.classes] for part in (self.train, self.held_out))]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def epoch(self, number: int) -> Sequence[npt.NDArray[np.int64]]:
        """Batches of texts of about equal length."""
        return self.batches.epoch(number)

    def batch(self, rows: npt.NDArray[np.int64]) -> tuple[Int[Tensor, "B T"], Int[Tensor, " B"]]:
        """Ids and classes of training texts."""
        return self._tensors(self.train, rows)

    def validate(self) -> ClassValidation:
        """Loss, accuracy and F1 of the held-out texts."""
        total, labels, named = 0.0, list[int](), list[int]()
        with evaluating(self.model):
            for rows in self.held_out_batches.epoch(0):
                ids, classes = self._tensors(self.held_out, rows)
                logits = self.model(ids)  # [B, C]
                total += F.cross_entropy(logits, classes, reduction="sum").item()
                labels += [self.held_out.classes[row] for row in rows]
                named += to_lists(logits.argmax(-1))
        return ClassValidation(total / len(labels), ClassScores.of(self.classes, labels, named))

    def shown(self, rows: npt.NDArray[np.int64]) -> Shown:
        """A few texts."""
        return shown_classes(self.config, *self.batch(rows), self.tokenizer.pad_id)

    def _tensors(self, part: Examples, rows: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        places: list[int] = rows.tolist()
        ids = [part.ids[row] for row in places]
        return pad_rows(ids, cast(int, self.tokenizer.pad_id)), torch.tensor(
            [part.classes[row] for row in places]
        )


def shown_classes(config: RunConfig, inputs: Tensor, classes: Tensor, pad_id: int | None) -> Shown:
    """A few texts or pictures for whoever examines the model, with the loss of training."""
    smoothing = config.train.label_smoothing

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, label_smoothing=smoothing)

    return Shown((inputs,), classes, loss, "encoder", pad_id)
