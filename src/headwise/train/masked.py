"""Learning to fill in a text: some tokens of every window are hidden, and guessed from both sides."""

from __future__ import annotations

import math
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
from headwise.config import RunConfig
from headwise.data.text import Text
from headwise.data.windows import Windows
from headwise.decode.rules import evaluating
from headwise.errors import DataError
from headwise.model.text_encoder import MaskedLanguageModel
from headwise.train.language import TextTask
from headwise.train.task import Shown, Watch

NOT_ASKED = -100  # the label of a position that is not to be guessed


@dataclass(frozen=True)
class MaskedValidation:
    """Loss in nats a hidden token; accuracy: share of them named first."""

    loss: float
    accuracy: float
    samples: Sequence[str] = ()

    @property
    def perplexity(self) -> float:
        """exp(loss): between how many tokens the model hesitates."""
        return math.exp(min(self.loss, 700.0))

    def metrics(self, prefix: str) -> dict[str, float]:
        """The numbers by name."""
        values = {"loss": self.loss, "perplexity": self.perplexity, "accuracy": self.accuracy}
        return {f"{prefix}_{name}": value for name, value in values.items()}

    def summary(self) -> str:
        """One line."""
        return (
            f"validation loss {self.loss:.4f}  perplexity {self.perplexity:.2f}  accuracy {self.accuracy:.1%}"
        )

    def watched(self, name: Watch) -> float:
        """Lower is better."""
        return -self.accuracy if name == "accuracy" else self.loss


def hide_tokens(
    ids: Int[Tensor, "B T"],
    share: float,
    mask_id: int,
    others: Int[Tensor, " V"],
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """The text with some tokens hidden, and those tokens as labels (NOT_ASKED elsewhere).

    Of the tokens to guess 80 % become the mask, 10 % one of `others`, 10 % stay as they are.
    BERT, section 3.1, task 1

    others: what may stand in a text; a padding mark would be taken for padding.
    """
    chosen = torch.rand(ids.shape, generator=generator) < share  # [B, T]
    fate = torch.rand(ids.shape, generator=generator)  # [B, T]
    drawn = others[torch.randint(len(others), ids.shape, generator=generator)]  # [B, T]
    shown = torch.where(chosen & (fate < 0.8), mask_id, ids)  # [B, T]
    shown = torch.where(chosen & (fate >= 0.9), drawn, shown)  # [B, T]
    return shown, torch.where(chosen, ids, NOT_ASKED)


class MaskedLanguageModelling(TextTask):
    """The hidden tokens of a text, at every window."""

    def __init__(self, config: RunConfig, data: Text) -> None:
        super().__init__(config, data)
        tokenizer = data.tokenizer
        if tokenizer.mask_id is None:
            raise DataError("the vocabulary has no token for what is hidden: expected <mask>; train it anew")
        self.mask_id = tokenizer.mask_id
        marks = {tokenizer.pad_id, tokenizer.begin_id, tokenizer.end_id, self.mask_id, tokenizer.unk_id}
        self.others = torch.tensor([i for i in range(tokenizer.vocab_size) if i not in marks])

    def make_model(self) -> MaskedLanguageModel:
        """An encoder-only model."""
        self.model = cast(MaskedLanguageModel, build_model(self.config, self.data.tokenizer))
        self.forward = self.model.body.forward
        return self.model

    def batch(self, rows: npt.NDArray[np.int64]) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
        """Windows with tokens hidden, anew each time, and those tokens."""
        return self._hidden(self.windows, rows, None)

    def targets(self, batch: tuple[Tensor, Tensor]) -> int:
        """Hidden tokens; at least 1, so that a step without any has a loss of 0."""
        return max(1, int((batch[1] != NOT_ASKED).sum()))

    def loss(self, batch: tuple[Tensor, Tensor], divisor: float) -> Tensor:
        """Cross-entropy of the hidden tokens; the others make no logits."""
        logits, labels = self._asked(self.forward, batch)
        smoothing = self.config.train.label_smoothing
        return F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum") / divisor

    def validate(self) -> MaskedValidation:
        """The same tokens hidden each time, so that validations can be compared."""
        generator = torch.Generator().manual_seed(0)
        total, right, asked = 0.0, 0, 0
        text = self.config.data.text
        with evaluating(self.model):
            for rows in self.held_out.in_order(max(1, 4096 // text.window), text.validation_tokens):
                batch = self._hidden(self.held_out, rows, generator)
                logits, labels = self._asked(self.model.body.forward, batch)
                total += F.cross_entropy(logits, labels, reduction="sum").item()
                right += int((logits.argmax(-1) == labels).sum())
                asked += len(labels)
        return MaskedValidation(total / max(asked, 1), right / max(asked, 1))

    def shown(self, rows: npt.NDArray[np.int64]) -> Shown:
        """A few windows; nothing is drawn from the run's random state."""
        ids, labels = self._hidden(self.windows, rows, torch.Generator().manual_seed(0))
        smoothing = self.config.train.label_smoothing

        def loss(logits: Tensor, labels: Tensor) -> Tensor:
            flat = logits.flatten(0, 1), labels.flatten()
            return F.cross_entropy(*flat, ignore_index=NOT_ASKED, label_smoothing=smoothing)

        return Shown((ids,), labels, loss, "encoder", self.data.tokenizer.pad_id)

    def _hidden(
        self, windows: Windows, rows: npt.NDArray[np.int64], generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        ids = windows.cut(rows)[:, :-1]  # [B, T]
        return hide_tokens(ids, self.config.data.text.masked_share, self.mask_id, self.others, generator)

    def _asked(self, forward: Callable[..., Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        ids, labels = batch
        places = (labels != NOT_ASKED).flatten().nonzero().squeeze(1)  # [N]
        hidden = forward(ids).flatten(0, 1).index_select(0, places)  # [N, D]
        return self.model.logits(hidden), labels.flatten()[places]
