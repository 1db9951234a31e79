"""Learning to name the class of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.build import build_model
from headwise.checkpoint.run import RunFiles, write_classes
from headwise.config import RunConfig
from headwise.data.images import Pictures, load_pictures
from headwise.decode.rules import evaluating
from headwise.evaluate.classes import ClassScores
from headwise.model.vision import ImageClassifier
from headwise.train.labelled import ClassValidation, shown_classes
from headwise.train.task import Shown, Task


class ImageClassification(Task):
    """The class of each picture; the test part is never looked at here."""

    unit = "pictures"

    def __init__(self, config: RunConfig, files: RunFiles) -> None:
        self.config, self.data = config, load_pictures(config.data.images, config.model.patches)
        write_classes(files, self.data.classes)
        self.rows = max(1, config.train.batch_tokens // (config.model.patches.count + 1))

    def make_model(self) -> ImageClassifier:
        """A vision model with a head for the classes of the data."""
        self.model = cast(ImageClassifier, build_model(self.config, None, self.data.classes))
        self.forward = self.model.forward
        return self.model

    def summary(self) -> str:
        """How many pictures of how many classes."""
        data = self.data
        return (
            f"{len(data.train):,} training pictures of {len(data.classes)} classes in {len(self.epoch(0)):,} "
            f"batches an epoch, {len(data.validation):,} to validate on, {len(data.test):,} kept for the test"
        )

    def fingerprint(self) -> str:
        """Of the pictures and how they are drawn apart."""
        return self.data.fingerprint()

    def epoch(self, number: int) -> Sequence[npt.NDArray[np.int64]]:
        """Every picture once, in an order that the seed decides."""
        generator = np.random.default_rng([self.config.train.seed, number])
        order = generator.permutation(len(self.data.train))
        return np.split(order, range(self.rows, len(order), self.rows))

    def batch(self, rows: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Pictures, moved where data.images.shift says so, and their classes."""
        images = torch.as_tensor(self.data.train.images[rows])  # [B, channels, height, width]
        shift = self.config.data.images.shift
        if shift:
            images = _shifted(images, shift)
        return images, torch.as_tensor(self.data.train.labels[rows])

    def targets(self, batch: tuple[Tensor, Tensor]) -> int:
        """One a picture."""
        return len(batch[1])

    def loss(self, batch: tuple[Tensor, Tensor], divisor: float) -> Tensor:
        """Smoothed cross-entropy of the classes."""
        smoothing = self.config.train.label_smoothing
        total = F.cross_entropy(self.forward(batch[0]), batch[1], label_smoothing=smoothing, reduction="sum")
        return total / divisor

    def validate(self) -> ClassValidation:
        """Loss, accuracy and F1 of the validation part."""
        return measure(self.model, self.data.validation, self.data.classes, self.rows)

    def shown(self, rows: npt.NDArray[np.int64]) -> Shown:
        """A few pictures."""
        images, labels = self.data.train.images[rows], self.data.train.labels[rows]
        return shown_classes(self.config, torch.as_tensor(images), torch.as_tensor(labels), None)


def measure(
    model: ImageClassifier, pictures: Pictures, classes: tuple[str, ...], rows: int
) -> ClassValidation:
    """Loss, accuracy and F1 of a part, in evaluation mode."""
    total, named = 0.0, list[int]()
    with evaluating(model):
        for start in range(0, len(pictures), rows):
            images = torch.as_tensor(pictures.images[start : start + rows])
            labels = torch.as_tensor(pictures.labels[start : start + rows])
            logits = model(images)  # [B, C]
            total += F.cross_entropy(logits, labels, reduction="sum").item()
            named += [int(place) for place in logits.argmax(-1)]
    scores = ClassScores.of(classes, [int(label) for label in pictures.labels], named)
    return ClassValidation(total / len(pictures), scores)


def _shifted(images: Tensor, most: int) -> Tensor:
    """Each picture moved by up to `most` pixels in both directions, black moving in."""
    size = images.shape[-2:]
    padded = F.pad(images, (most, most, most, most))
    moves = torch.randint(0, 2 * most + 1, (len(images), 2))
    cut = [
        picture[:, top : top + size[0], left : left + size[1]]
        for picture, (top, left) in zip(padded, moves, strict=True)
    ]
    return torch.stack(cut)
