"""The text of a run as token ids, with the tokenizer that made them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headwise.config import RunConfig
from headwise.data.batches import Batches
from headwise.data.corpus import encode_pairs, load_corpus
from headwise.data.pairs import Pairs
from headwise.data.tokenizer import Tokenizer
from headwise.train.batch import Encoded


@dataclass(frozen=True)
class Prepared:
    """Both parts of the text as ids, and the validation pairs as they were written."""

    tokenizer: Tokenizer
    train: Encoded
    validation: Encoded
    validation_pairs: list[tuple[str, str]]

    def summary(self) -> str:
        """One line: how much text, and how much of a batch is padding."""
        batches = self.train.batches.epoch(0)
        return (
            f"vocabulary {self.tokenizer.vocab_size:,}, {len(self.train.source):,} training pairs in "
            f"{len(batches):,} batches an epoch, {self.train.batches.padding_share(batches):.1%} padding"
        )

    def fingerprint(self) -> str:
        """Changes with the text and with the tokenizer: a run goes on only with the ids it began with."""
        content = json.dumps([[part.source, part.target] for part in (self.train, self.validation)])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def prepare(config: RunConfig, tokenizer_path: Path, warn: Callable[[str], None]) -> Prepared:
    """Load the text, train the tokenizer on its training part where there is none yet, encode.

    Errors: DataError as load_corpus and encode_pairs; RunError for a damaged tokenizer.
    """
    corpus = load_corpus(config.data)
    for warning in corpus.warnings:
        warn(warning)
    if not tokenizer_path.exists():
        text = [*corpus.train.source, *corpus.train.target]
        Tokenizer.train(text, config.data.vocab_size, corpus.tags).save(tokenizer_path)
    tokenizer = Tokenizer.load(tokenizer_path)
    is_parallel = config.data.kind == "parallel"
    longest = config.data.parallel.max_length if is_parallel else config.model.max_length

    def encode(pairs: Pairs, part: str) -> Encoded:
        source, target, warnings = encode_pairs(pairs, tokenizer, longest)
        for warning in warnings:
            warn(f"{part}: {warning}")
        lengths = (
            [len(row) + 1 for row in source],
            [len(row) + 1 for row in target],
        )  # each with its end mark
        return Encoded(source, target, Batches(*lengths, config.train.batch_tokens, config.train.seed))

    return Prepared(
        tokenizer,
        encode(corpus.train, "train"),
        encode(corpus.validation, "validation"),
        list(zip(corpus.validation.source, corpus.validation.target, strict=True)),
    )
