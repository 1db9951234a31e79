"""Learning to name the class of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.build import build_model
from headwise.checkpoint.run import RunFiles, write_classes
from headwise.config import ImagesConfig, RunConfig
from headwise.data.images import Pictures, load_pictures
from headwise.decode.rules import evaluating, to_lists
from headwise.evaluate.classes import ClassScores
from headwise.model.vision import ImageClassifier
from headwise.train.labelled import Classification, ClassValidation, shown_classes
from headwise.train.task import Shown


class ImageClassification(Classification):
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
        """Pictures, moved as data.images says, and their classes."""
        images = torch.as_tensor(self.data.train.images[rows])  # [B, channels, height, width]
        labels = torch.as_tensor(self.data.train.labels[rows])
        return moved(images, self.config.data.images), labels

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
            named += to_lists(logits.argmax(-1))
    scores = ClassScores.of(classes, pictures.labels.tolist(), named)
    return ClassValidation(total / len(pictures), scores)


def moved(images: Float[Tensor, "B channels height width"], config: ImagesConfig) -> Tensor:
    """Each picture turned, zoomed and moved by lot, up to what the configuration allows; black moves in.

    One sampling of the whole batch. A law: without a range nothing is drawn and nothing changes.
    """
    if not (config.shift or config.rotate or config.zoom):
        return images
    count, height, width = images.size(0), images.size(2), images.size(3)

    def lots(most: float) -> Tensor:
        return (2 * torch.rand(count) - 1) * most  # [B]

    angle, scale = torch.deg2rad(lots(config.rotate)), 1 / (1 + lots(config.zoom))
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    # affine_grid counts from -1 to 1 along each side
    right, down = lots(config.shift) * 2 / width, lots(config.shift) * 2 / height  # [B], [B]
    across = torch.stack((cosine, -sine * height / width, right), dim=-1)  # [B, 3]
    along = torch.stack((sine * width / height, cosine, down), dim=-1)  # [B, 3]
    grid = F.affine_grid(torch.stack((across, along), dim=1), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)
