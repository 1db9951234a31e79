"""How good the weights are on text that they do not learn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.config import TrainConfig
from headwise.data.tokenizer import Tokenizer
from headwise.decode.rules import evaluating
from headwise.decode.translate import Translator
from headwise.evaluate.score import score
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.train.batch import Encoded
from headwise.train.loss import cross_entropy, supervised
from headwise.train.task import Watch


@dataclass(frozen=True)
class TranslationValidation:
    """What a validation found.

    loss: nats a token, without label smoothing.
    accuracy: share of tokens named first, given the true past.
    bleu: of greedy translations, where it is watched.
    samples: source and translation, a line each.
    """

    loss: float
    accuracy: float
    bleu: float | None
    samples: list[str]

    @property
    def perplexity(self) -> float:
        """exp(loss): between how many tokens the model hesitates."""
        return math.exp(min(self.loss, 700.0))

    def metrics(self, prefix: str) -> dict[str, float]:
        """The numbers by name."""
        values = {"loss": self.loss, "perplexity": self.perplexity, "accuracy": self.accuracy}
        if self.bleu is not None:
            values["bleu"] = self.bleu
        return {f"{prefix}_{name}": value for name, value in values.items()}

    def watched(self, name: Watch) -> float:
        """Lower is better."""
        return {"loss": self.loss, "bleu": -(self.bleu or 0.0), "accuracy": -self.accuracy}[name]

    def summary(self) -> str:
        """One line."""
        bleu = "" if self.bleu is None else f"  BLEU {self.bleu:.2f}"
        return (
            f"validation loss {self.loss:.4f}  perplexity {self.perplexity:.2f}  "
            f"accuracy {self.accuracy:.1%}{bleu}"
        )


def validate(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    data: Encoded,
    pairs: Sequence[tuple[str, str]],
    config: TrainConfig,
) -> TranslationValidation:
    """Measure the model on the validation set, in evaluation mode; its random state is not touched."""
    loss, right, tokens = 0.0, 0, 0
    with evaluating(model):
        for rows in data.batches.epoch(0):
            batch = data.batch(rows.tolist(), tokenizer)
            hidden = model.hidden(batch.source, batch.decoder_input)
            hidden, labels = supervised(hidden, batch.labels, tokenizer.pad_id)
            loss += cross_entropy(hidden, model.output.weight, labels).item()
            right += int((model.logits(hidden).argmax(-1) == labels).sum())
            tokens += len(labels)
    # sources that are cut were already told of, once, when the text was encoded
    translator = Translator(model, tokenizer, beam_size=1, warn=lambda _: None)
    samples = pairs[: config.samples]
    translations = translator.translate([source for source, _ in samples])
    bleu = None
    if config.watch == "bleu":
        hypotheses = translator.translate([source for source, _ in pairs])
        bleu = score(hypotheses, [target for _, target in pairs]).bleu
    shown = [f"{source}  ->  {ours}" for (source, _), ours in zip(samples, translations, strict=True)]
    return TranslationValidation(loss / tokens, right / tokens, bleu, shown)
