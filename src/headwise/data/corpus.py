"""From the data configuration to text, and from text to ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.config import DataConfig, ParallelConfig, expanded
from headwise.data.pairs import Pairs
from headwise.data.parallel import read_lines, read_parallel
from headwise.data.tokenizer import Tokenizer
from headwise.errors import DataError


@dataclass(frozen=True)
class Corpus:
    """The text of a run; `test` is None for parallel files, whose test set is named at evaluation."""

    train: Pairs
    validation: Pairs
    test: Pairs | None
    tags: tuple[str, ...]
    warnings: tuple[str, ...]


def load_corpus(config: DataConfig) -> Corpus:
    """Make or read the text that the configuration names.

    Errors: DataError as read_parallel, and when more than half of the test sentences are training
    sentences; a smaller overlap, or one with the validation sentences, is a counted warning.
    """
    return _dates(config) if config.kind == "dates" else _parallel(config.parallel)


def encode_pairs(
    pairs: Pairs, tokenizer: Tokenizer, max_length: int
) -> tuple[list[list[int]], list[list[int]], tuple[str, ...]]:
    """Source ids, target ids (without begin or end) and counted warnings.

    max_length: most tokens of a side, its end mark included; longer pairs are left out.

    Errors: DataError when no pair is left.
    """
    encoded = zip(tokenizer.encode(pairs.source), tokenizer.encode(pairs.target), strict=True)
    kept = [(source, target) for source, target in encoded if max(len(source), len(target)) < max_length]
    if not kept:
        raise DataError(
            f"at least one pair must fit max_length={max_length} tokens: got {len(pairs)} pairs, all longer; "
            "raise max_length"
        )
    warnings: list[str] = []
    if len(kept) < len(pairs):
        warnings.append(
            f"{len(pairs) - len(kept)} of {len(pairs)} pairs left out: over {max_length} tokens, "
            f"end mark included"
        )
    unknown = sum(side.count(tokenizer.unk_id) for pair in kept for side in pair)
    if unknown:
        warnings.append(f"{unknown} characters are not in the vocabulary and became <unk>")
    return [source for source, _ in kept], [target for _, target in kept], tuple(warnings)


def _dates(config: DataConfig) -> Corpus:
    from headwise.data.dates import make_dates, tag  # babel is slow to import and parallel text needs none

    train, validation, test = make_dates(config.dates)
    return Corpus(train, validation, test, tuple(tag(language) for language in config.dates.languages), ())


def _parallel(config: ParallelConfig) -> Corpus:
    folder = expanded(config.folder)

    def find(name: str) -> Path:
        path = folder / expanded(name)
        if not path.exists():
            raise DataError(
                f"no file {path}: data.parallel.folder says where the text is (got {config.folder}), "
                "data.parallel.train_source and so on how its files are called"
            )
        return path

    train, warnings = read_parallel(find(config.train_source), find(config.train_target))
    validation, more = read_parallel(find(config.validation_source), find(config.validation_target))
    warnings += more
    known = {sentence.strip() for sentence in train.source}
    repeated = _known(validation.source, known)
    if repeated:
        warnings.append(_overlap("validation", repeated, len(validation)))
    if config.test_source is not None:
        path = find(config.test_source)
        sentences = [line for line in read_lines(path) if line.strip()]
        repeated = _known(sentences, known)
        if 2 * len(repeated) > len(sentences):
            raise DataError(
                f"the test set must not be training text: got {_overlap('test', repeated, len(sentences))}; "
                f"take {path} out of the training files, or name another test_source"
            )
        if repeated:
            warnings.append(_overlap("test", repeated, len(sentences)))
    return Corpus(train, validation, None, (), tuple(warnings))


def _known(sentences: Sequence[str], known: set[str]) -> list[str]:
    return [sentence for sentence in sentences if sentence.strip() in known]


def _overlap(name: str, repeated: Sequence[str], count: int) -> str:
    example = repeated[0].strip()
    shown = example if len(example) <= 80 else example[:79] + "\u2026"
    return f"{len(repeated)} of {count} {name} sentences are also training sentences, for example {shown!r}"
