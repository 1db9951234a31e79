"""The text of a language model: files to characters, characters to a training and a validation part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.config import TextConfig, expanded
from headwise.data.text_tokenizer import MASK, PADDING, TextTokenizer
from headwise.data.token_file import TextDigest, TokenFile, fingerprint, read_pieces
from headwise.errors import DataError

_PARTS = ("train", "validation")


@dataclass(frozen=True)
class Text:
    """Both parts as ids on disk, with the tokenizer that made them.

    validation_bytes: of the validation part in UTF-8, so that a loss can be told in bits a byte.
    sha256: of both parts and the vocabulary.
    """

    tokenizer: TextTokenizer
    train: TokenFile
    validation: TokenFile
    validation_bytes: int
    sha256: str


def load_text(
    config: TextConfig, vocab_size: int, tokenizer_path: Path, folder: Path, warn: Callable[[str], None]
) -> Text:
    """Read the text, train the tokenizer where there is none yet, encode where that is not done yet.

    folder: keeps the ids; a text larger than the memory is read and written piece by piece.

    Errors: DataError as stream_lines, and for parts that are empty; RunError for a damaged tokenizer.
    """
    files, others = _paths(config, config.files), _paths(config, config.validation_files)
    whole = fingerprint(read_pieces(files))
    cut = whole.characters if others else int(whole.characters * (1 - config.validation_share))

    def pieces(part: str) -> Iterator[str]:
        if part == "train":
            return _between(read_pieces(files), 0, cut)
        return read_pieces(others) if others else _between(read_pieces(files), cut, whole.characters)

    if not tokenizer_path.exists():
        # pieces that are learnt from the validation text would fit it better than any other
        learnt = pieces("train") if config.tokens == "bpe" or others else read_pieces(files)
        marks = (PADDING, MASK)
        TextTokenizer.train(learnt, config.tokens, vocab_size, marks).save(tokenizer_path)
    tokenizer = TextTokenizer.load(tokenizer_path)
    vocabulary = hashlib.sha256(tokenizer_path.read_bytes()).hexdigest()
    found: dict[str, TokenFile] = {}
    digests: dict[str, TextDigest] = {}
    for part in _PARTS:
        text = fingerprint(pieces(part))
        if not text.characters:
            raise DataError(
                f"the {part} text must not be empty: got {whole.characters} characters in all; "
                "give more text or another data.text.validation_share"
            )
        path = folder / f"{part}.tokens"
        kept = TokenFile.read(path, tokenizer, text, vocabulary)
        found[part] = kept or TokenFile.write(path, pieces(part), tokenizer, text, vocabulary)
        digests[part] = text
        if found[part].unknown:
            warn(f"{part}: {found[part].unknown} characters are not in the vocabulary and became <unk>")
    total = hashlib.sha256(
        "".join([*(digests[part].sha256 for part in _PARTS), vocabulary]).encode()
    ).hexdigest()
    return Text(tokenizer, found["train"], found["validation"], digests["validation"].size, total)


def first_ids(
    config: TextConfig, tokenizer: TextTokenizer, characters: int = 5_000
) -> npt.NDArray[np.uint32]:
    """The beginning of the text, with nothing written: for whoever only wants to look.

    Errors: DataError as load_text.
    """
    piece = next(read_pieces(_paths(config, config.files)))[:characters]
    return tokenizer.encode_long(piece)


def text_of(ids: npt.NDArray[Any], tokenizer: TextTokenizer) -> Text:
    """Ids in memory as both parts of a text."""
    part = TokenFile(ids.astype(np.uint32), 0)
    return Text(tokenizer, part, part, len(ids), "")


def _paths(config: TextConfig, names: Iterable[str]) -> list[Path]:
    paths = [expanded(config.folder) / expanded(name) for name in names]
    part = "files" if names is config.files else "validation_files"
    for path in paths:
        if not path.exists():
            raise DataError(
                f"no file {path}: data.text.folder says where the text is (got {config.folder}), "
                f"data.text.{part} how its files are called"
            )
    return paths


def _between(pieces: Iterable[str], start: int, end: int) -> Iterator[str]:
    """The characters from start to end of a text that comes in pieces."""
    seen = 0
    for piece in pieces:
        part = piece[max(0, start - seen) : max(0, end - seen)]
        seen += len(piece)
        if part:
            yield part
        if seen >= end:
            return
