"""Where the data come from and how they become tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from headwise.config.rules import at_least, check_types, one_of, require

KINDS = ("dates", "parallel", "text", "labelled", "images")
LANGUAGES = ("de", "zh", "fr", "ja")


@dataclass(frozen=True)
class DatesConfig:
    """Dates, times, numbers, currencies and percentages to translate: made up, never downloaded.

    Args:
        languages: target languages, each from de, zh, fr, ja.
        train_size: training pairs.
        validation_size: validation pairs.
        test_size: test pairs, of values never seen in training in any style.
        seed: of the generator.
    """

    languages: tuple[str, ...] = ("de", "zh")
    train_size: int = 60_000
    validation_size: int = 500
    test_size: int = 3_000
    seed: int = 1

    def __post_init__(self) -> None:
        check_types(self)
        at_least(
            1, train_size=self.train_size, validation_size=self.validation_size, test_size=self.test_size
        )
        at_least(0, seed=self.seed)
        require(
            len(self.languages) > 0, f"languages must name at least one of {', '.join(LANGUAGES)}: got none"
        )
        for language in self.languages:
            one_of("languages", language, LANGUAGES)
        require(
            len(set(self.languages)) == len(self.languages),
            f"languages must differ from each other: got {', '.join(self.languages)}",
        )


@dataclass(frozen=True)
class ParallelConfig:
    """Aligned text files: line n of one translates line n of the other; plain or .gz, UTF-8.

    Args:
        folder: where the files below are; a name with a leading slash stands by itself.
        train_source: source side of the training text.
        train_target: target side of the training text.
        validation_source: source side of the validation text.
        validation_target: target side of the validation text.
        test_source: optional; only compared with the training text, so that an overlap is told.
        max_length: longer pairs (in tokens, either side) are left out of training, and counted.
    """

    folder: str = "."
    train_source: str = "train.en.gz"
    train_target: str = "train.de.gz"
    validation_source: str = "val.en.gz"
    validation_target: str = "val.de.gz"
    test_source: str | None = None
    max_length: int = 128

    def __post_init__(self) -> None:
        check_types(self)
        at_least(2, max_length=self.max_length)


@dataclass(frozen=True)
class TextConfig:
    """Plain text to continue (a decoder-only model) or to fill in (an encoder-only one).

    Args:
        folder: where the files below are; a name with a leading slash stands by itself.
        files: text files, plain or .gz, UTF-8, read in this order as one text.
        validation_files: text to validate on; left out, the last part of `files`.
        validation_share: which share of the text that last part is.
        tokens: "characters" (each a token) or "bpe" (byte-pair encoding over UTF-8 bytes, of
            data.vocab_size entries).
        window: tokens that are learned from at a time.
        masked_share: encoder-only: share of the tokens to guess; 0.15 in BERT.
        validation_tokens: most tokens of the validation text that a validation reads.
    """

    folder: str = "."
    files: tuple[str, ...] = ("input.txt",)
    validation_files: tuple[str, ...] = ()
    validation_share: float = 0.1
    tokens: Literal["characters", "bpe"] = "characters"
    window: int = 64
    masked_share: float = 0.15
    validation_tokens: int = 1_000_000

    def __post_init__(self) -> None:
        check_types(self)
        require(len(self.files) > 0, "data.text.files must name at least one file: got none")
        one_of("data.text.tokens", self.tokens, ("characters", "bpe"))
        at_least(2, window=self.window, validation_tokens=self.validation_tokens)
        require(
            0 < self.validation_share < 1,
            f"validation_share must lie between 0 and 1: got {self.validation_share}; 0.1 is usual",
        )
        require(
            0 < self.masked_share < 1,
            f"masked_share must lie between 0 and 1: got {self.masked_share}; 0.15 is BERT's",
        )


@dataclass(frozen=True)
class LabelledConfig:
    """Texts and their classes: CSV, TSV or JSON lines, one example a row.

    Args:
        folder: where the files below are; a name with a leading slash stands by itself.
        train: the file to learn from; .csv, .tsv or .jsonl, plain or .gz, UTF-8.
        validation: the file to validate on; left out, a share of `train`, drawn by class.
        validation_share: that share.
        text: name of the column or key that holds the text.
        label: name of the column or key that holds the class.
        tokens: "bpe" (byte-pair encoding, of data.vocab_size entries) or "characters".
        max_length: longer texts (in tokens, the class token counted) are cut, and counted.
        seed: of the draw.
    """

    folder: str = "."
    train: str = "train.csv"
    validation: str | None = None
    validation_share: float = 0.1
    text: str = "text"
    label: str = "label"
    tokens: Literal["characters", "bpe"] = "bpe"
    max_length: int = 128
    seed: int = 1

    def __post_init__(self) -> None:
        check_types(self)
        one_of("data.labelled.tokens", self.tokens, ("characters", "bpe"))
        at_least(2, max_length=self.max_length)
        at_least(0, seed=self.seed)
        require(
            0 < self.validation_share < 1,
            f"validation_share must lie between 0 and 1: got {self.validation_share}; 0.1 is usual",
        )
        require(
            self.text != self.label,
            f"data.labelled.text and data.labelled.label must differ: got {self.text!r} for both",
        )


@dataclass(frozen=True)
class ImagesConfig:
    """Pictures and their classes.

    Args:
        source: "digits" (scikit-learn's 1,797 handwritten digits of 8 x 8 pixels), a folder with one
            subfolder of pictures a class, or an .npz file with arrays `images` [N, height, width] or
            [N, height, width, channels] and `labels` [N].
        test_share: share kept for the test, drawn by class and never looked at in training.
        validation_share: share of the rest kept for validation, drawn by class.
        split_seed: of both draws, so that other seeds of training see the same parts.
        shift: training pictures are moved by up to so many pixels, both ways, anew each time.
        rotate: and turned by up to so many degrees.
        zoom: and made larger or smaller by up to this share.
    """

    source: str = "digits"
    test_share: float = 0.2
    validation_share: float = 0.1
    split_seed: int = 1
    shift: float = 0.0
    rotate: float = 0.0
    zoom: float = 0.0

    def __post_init__(self) -> None:
        check_types(self)
        at_least(0, split_seed=self.split_seed)
        require(
            0 <= self.shift < math.inf,
            f"shift must be finite and at least 0: got {self.shift}; 1 is usual",
        )
        for name, most, usual in (("rotate", 180.0, "10"), ("zoom", 0.9, "0.1")):
            value: float = getattr(self, name)
            require(
                0 <= value <= most,
                f"{name} must be at least 0 and at most {most:g}: got {value}; {usual} is usual",
            )
        for name in ("test_share", "validation_share"):
            share: float = getattr(self, name)
            require(0 < share < 1, f"{name} must lie between 0 and 1: got {share}; 0.1 is usual")


@dataclass(frozen=True)
class DataConfig:
    """Where the data come from and how they become tokens.

    Args:
        kind: "dates" (made from a seed) or "parallel" (two aligned files) to translate; "text" (plain
            text) to continue or fill in; "labelled" (texts with classes); "images" (pictures with classes).
        vocab_size: most entries that a subword vocabulary may have (byte-pair encoding).
        dates: settings of kind dates.
        parallel: settings of kind parallel.
        text: settings of kind text.
        labelled: settings of kind labelled.
        images: settings of kind images.
    """

    kind: Literal["dates", "parallel", "text", "labelled", "images"] = "dates"
    vocab_size: int = 512
    dates: DatesConfig = field(default_factory=DatesConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    text: TextConfig = field(default_factory=TextConfig)
    labelled: LabelledConfig = field(default_factory=LabelledConfig)
    images: ImagesConfig = field(default_factory=ImagesConfig)

    def __post_init__(self) -> None:
        check_types(self)
        one_of("data.kind", self.kind, KINDS)
        at_least(16, vocab_size=self.vocab_size)
        require(  # the trainer makes room for all of them at once
            self.vocab_size <= 1_000_000,
            f"data.vocab_size must be at most 1000000: got {self.vocab_size}; some thousands are usual",
        )
