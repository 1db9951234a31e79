"""Learning to translate: the encoder-decoder on pairs of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.build import build_model
from headwise.config import RunConfig
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.train.batch import Batch
from headwise.train.loss import cross_entropy, supervised
from headwise.train.prepare import Prepared
from headwise.train.task import Shown, Task
from headwise.train.validate import TranslationValidation, validate


class Translation(Task):
    """The next token of the translation, given the source and the true tokens before it."""

    def __init__(self, config: RunConfig, data: Prepared) -> None:
        self.config, self.data, self.tokenizer = config, data, data.tokenizer

    def make_model(self) -> EncoderDecoder:
        """An encoder-decoder for the tokenizer's vocabulary."""
        self.model = cast(EncoderDecoder, build_model(self.config, self.tokenizer))
        self.forward = self.model.hidden
        return self.model

    def summary(self) -> str:
        """How much text, and how much of a batch is padding."""
        return self.data.summary()

    def fingerprint(self) -> str:
        """Of the text and the tokenizer."""
        return self.data.fingerprint()

    def epoch(self, number: int) -> Sequence[npt.NDArray[np.int64]]:
        """Batches of about equal token counts."""
        return self.data.train.batches.epoch(number)

    def batch(self, rows: npt.NDArray[np.int64]) -> Batch:
        """Sources, shifted targets and labels."""
        return self.data.train.batch(rows.tolist(), self.tokenizer)

    def targets(self, batch: Batch) -> int:
        """Target tokens, end marks counted."""
        return int((batch.labels != self.tokenizer.pad_id).sum())

    def loss(self, batch: Batch, divisor: float) -> Tensor:
        """Smoothed cross-entropy of the target tokens."""
        hidden = self.forward(batch.source, batch.decoder_input)
        hidden, labels = supervised(hidden, batch.labels, self.tokenizer.pad_id)
        smoothing = self.config.train.label_smoothing
        return cross_entropy(hidden, self.model.output.weight, labels, smoothing, divisor)

    def validate(self) -> TranslationValidation:
        """Loss, accuracy, sample translations, and BLEU where it is watched."""
        data, config = self.data, self.config.train
        return validate(self.model, data.tokenizer, data.validation, data.validation_pairs, config)

    def shown(self, rows: npt.NDArray[np.int64]) -> Shown:
        """Sources and shifted targets, with the loss of whole logits."""
        return shown_pairs(self.batch(rows), self.tokenizer.pad_id, self.config.train.label_smoothing)


def shown_pairs(batch: Batch, pad_id: int, smoothing: float) -> Shown:
    """A batch for whoever examines the model, with the loss of loss.py on whole logits."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        flat = logits.flatten(0, 1), labels.flatten()
        return F.cross_entropy(*flat, ignore_index=pad_id, label_smoothing=smoothing)

    return Shown((batch.source, batch.decoder_input), batch.labels, loss, "encoder-decoder", pad_id)
