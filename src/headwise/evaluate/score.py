"""How close translations come to their references: BLEU, chrF, exact match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headwise.errors import ConfigError, DataError

# What cuts text into BLEU's words. sacreBLEU knows more, but fetches those from the network.
TOKENIZERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")


@dataclass(frozen=True)
class Scores:
    """A set of translations against one reference each.

    bleu, chrf: 0 to 100, of the whole set (not a mean over sentences).
    bleu_line, chrf_line: as sacreBLEU prints them, signature first: what somebody needs to repeat it.
    exact: translations equal to their reference, of count.
    """

    bleu: float
    chrf: float
    exact: int
    count: int
    bleu_line: str
    chrf_line: str

    @property
    def exact_share(self) -> float:
        """Share of translations equal to their reference, 0 to 1."""
        return self.exact / self.count

    def lines(self) -> list[str]:
        """What `headwise evaluate` prints."""
        exact = f"exact match = {100 * self.exact_share:.2f} ({self.exact} of {self.count})"
        return [self.bleu_line, self.chrf_line, exact]


def score(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str = "13a"
) -> Scores:
    """Compare each hypothesis with the reference of the same place.

    BLEU: A Call for Clarity in Reporting BLEU Scores (sacreBLEU).  chrF2: chrF: character n-gram
    F-score for automatic MT evaluation, beta 2. Both of plain text, never of tokens.

    lowercase: of both sides, exact match included.
    tokenize: BLEU's words: 13a for text with spaces, zh or char for Chinese, ja-mecab for Japanese.

    Errors: DataError for unequal counts or none; ConfigError as check_tokenizer.
    Law: 100, 100 and every one exact if and only if both sides are equal (of four words or more).
    """
    from sacrebleu.metrics.chrf import CHRF

    if len(hypotheses) != len(references):
        raise DataError(
            f"each translation needs its reference: got {len(hypotheses)} translations and "
            f"{len(references)} references; give one reference for each, in the same order"
        )
    if not hypotheses:
        raise DataError("there must be at least one translation to score: got none; give text to translate")
    bleu_metric = _bleu(lowercase, tokenize)
    chrf_metric = CHRF(lowercase=lowercase)
    bleu = bleu_metric.corpus_score(hypotheses, [references])
    chrf = chrf_metric.corpus_score(hypotheses, [references])
    pairs = zip(hypotheses, references, strict=True)
    equal = sum(h.lower() == r.lower() if lowercase else h == r for h, r in pairs)
    return Scores(
        bleu=float(bleu.score),
        chrf=float(chrf.score),
        exact=equal,
        count=len(hypotheses),
        bleu_line=_line(bleu, bleu_metric),
        chrf_line=_line(chrf, chrf_metric),
    )


def check_tokenizer(name: str) -> None:
    """Tell before the work whether `score` can cut words in this way.

    Errors: ConfigError for a name that is not of TOKENIZERS, or one whose package is not installed.
    """
    _bleu(False, name)


def _bleu(lowercase: bool, tokenize: str) -> Any:
    from sacrebleu.metrics.bleu import BLEU  # a tenth of a second that nobody else should pay

    if tokenize not in TOKENIZERS:
        raise ConfigError(f"tokenize must be one of {', '.join(TOKENIZERS)}: got {tokenize!r}")
    try:
        return BLEU(lowercase=lowercase, tokenize=tokenize)
    except RuntimeError as error:
        language = tokenize[:2]
        raise ConfigError(
            f"tokenize={tokenize} needs a package that is not installed: "
            f"pip install 'sacrebleu[{language}]', or use char"
        ) from error


def _line(result: Any, metric: Any) -> str:
    return str(result.format(signature=str(metric.get_signature())))
