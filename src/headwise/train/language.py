"""Learning to continue a text: every token from all before it in its window."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.build import build_model
from headwise.config import RunConfig
from headwise.data.text import Text
from headwise.data.windows import Windows
from headwise.decode.rules import evaluating
from headwise.decode.sample import generate
from headwise.decode.sampling import Sampling
from headwise.model.language_model import LanguageModel
from headwise.train.loss import cross_entropy
from headwise.train.task import Shown, Task, Watch

_PROMPT, _SAMPLE = 16, 48  # tokens of a sample's prompt and of its continuation


@dataclass(frozen=True)
class TextValidation:
    """Loss in nats a token; bits_per_byte compares models of different vocabularies."""

    loss: float
    bits_per_byte: float
    samples: Sequence[str] = ()

    @property
    def perplexity(self) -> float:
        """exp(loss): between how many tokens the model hesitates."""
        return math.exp(min(self.loss, 700.0))

    def metrics(self, prefix: str) -> dict[str, float]:
        """The numbers by name."""
        values = {"loss": self.loss, "perplexity": self.perplexity, "bits_per_byte": self.bits_per_byte}
        return {f"{prefix}_{name}": value for name, value in values.items()}

    def summary(self) -> str:
        """One line."""
        return (
            f"validation loss {self.loss:.4f}  perplexity {self.perplexity:.2f}  "
            f"{self.bits_per_byte:.3f} bits a byte"
        )

    def watched(self, name: Watch) -> float:
        """Lower is better; there is nothing but the loss to watch."""
        return self.loss


class TextTask(Task):
    """What learning from windows of a text is, whatever is asked of them."""

    def __init__(self, config: RunConfig, data: Text) -> None:
        self.config, self.data = config, data
        length = config.data.text.window
        rows = config.train.batch_tokens // length
        self.windows = Windows(data.train.ids, length, rows, config.train.seed, "training text")
        self.held_out = Windows(data.validation.ids, length, rows, 0, "validation text")

    def summary(self) -> str:
        """How much text."""
        return (
            f"vocabulary {self.data.tokenizer.vocab_size:,}, {len(self.data.train):,} training tokens in "
            f"{len(self.epoch(0)):,} batches an epoch, {len(self.data.validation):,} validation tokens"
        )

    def fingerprint(self) -> str:
        """Of the text and the tokenizer."""
        return self.data.sha256[:16]

    def epoch(self, number: int) -> Sequence[npt.NDArray[np.int64]]:
        """Batches of windows, by their starts."""
        return self.windows.epoch(number)


class LanguageModelling(TextTask):
    """The next token of a text, at every position of every window."""

    def make_model(self) -> LanguageModel:
        """A decoder-only model; no token of a window is padding."""
        self.model = cast(LanguageModel, build_model(self.config, self.data.tokenizer))
        self.forward = self.model.hidden
        return self.model

    def batch(self, rows: npt.NDArray[np.int64]) -> Int[Tensor, "B tokens"]:
        """Windows with the token after each."""
        return self.windows.cut(rows)

    def targets(self, batch: Int[Tensor, "B tokens"]) -> int:
        """Tokens to name: one a position."""
        return batch.size(0) * (batch.size(1) - 1)

    def loss(self, batch: Int[Tensor, "B tokens"], divisor: float) -> Tensor:
        """Cross-entropy of the tokens, shifted here and nowhere else."""
        return self._loss(self.forward, batch, self.config.train.label_smoothing, divisor)

    def validate(self) -> TextValidation:
        """The mean over all windows of the validation text side by side, and samples."""
        total, targets = 0.0, 0
        most = self.config.data.text.validation_tokens
        with evaluating(self.model):
            for rows in self.held_out.in_order(max(1, 4096 // self.config.data.text.window), most):
                batch = self.held_out.cut(rows)
                total += self._loss(self.model.hidden, batch, 0.0, 1.0).item()
                targets += self.targets(batch)
        loss = total / targets
        tokens_a_byte = len(self.data.validation) / self.data.validation_bytes
        return TextValidation(loss, loss / math.log(2) * tokens_a_byte, self._samples())

    def shown(self, rows: npt.NDArray[np.int64]) -> Shown:
        """A few windows."""
        windows = self.batch(rows)
        smoothing = self.config.train.label_smoothing

        def loss(logits: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)

        return Shown((windows[:, :-1],), windows[:, 1:], loss, "decoder", None)

    def _loss(
        self, forward: Callable[..., Tensor], batch: Tensor, smoothing: float, divisor: float
    ) -> Tensor:
        hidden = forward(batch[:, :-1]).flatten(0, 1)  # [N, D]
        if self.config.model.scale_output:
            hidden = hidden * self.config.model.d_model**-0.5  # [N, D]
        labels = batch[:, 1:].flatten()
        bias = cast("Tensor | None", self.model.output.bias)
        if bias is None:
            return cross_entropy(hidden, self.model.output.weight, labels, smoothing, divisor)
        logits = F.linear(hidden, self.model.output.weight, bias)  # [N, V]
        return F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum") / divisor

    def _samples(self) -> list[str]:
        count = min(self.config.train.samples, max(1, len(self.data.validation) // (2 * _PROMPT)))
        if count == 0:
            return []
        starts = np.linspace(0, len(self.data.validation) - _PROMPT - 1, count, dtype=np.int64)
        ids = self.data.validation.ids
        prompts = [[int(i) for i in ids[start : start + _PROMPT]] for start in starts.clip(min=0)]
        tokenizer = self.data.tokenizer
        marks = (tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id)
        forbidden = [mark for mark in marks if mark is not None]
        found = generate(self.model, prompts, _SAMPLE, Sampling(temperature=0.8), forbidden_ids=forbidden)
        texts = self.data.tokenizer.decode(prompts), self.data.tokenizer.decode(found)
        return [f"{a!r}  ->  {b!r}" for a, b in zip(*texts, strict=True)]
