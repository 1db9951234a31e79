"""A text of any size as token ids on disk: written piece by piece, read through a memory map."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from headwise.data.parallel import stream_text
from headwise.data.text_tokenizer import TextTokenizer
from headwise.errors import DataError, StorageError
from headwise.files import write_atomically, write_text_atomically

_PIECE = 1 << 20  # characters that are encoded at a time
_LAST_BORDER = re.compile(r".*\S(?=[ \n])", re.DOTALL)


@dataclass(frozen=True)
class TextDigest:
    """A text's checksum and length: enough to tell whether it is still the same.

    size: its bytes in UTF-8.
    """

    sha256: str
    characters: int
    size: int


def read_pieces(paths: Iterable[Path]) -> Iterator[str]:
    """The text of files, one after the other, in pieces that encode as the whole does.

    A piece ends between a word and the white space after it, where no token of a byte-pair vocabulary
    goes on; a text without any is cut where it must be. A carriage return before a line feed and a byte
    order mark are dropped.

    Errors: DataError as stream_text, and for a file without text.
    """
    for path in paths:
        held, is_empty = "", True
        for text in stream_text(path):
            held, is_empty = held + text, False
            while len(held) >= _PIECE:
                border = _LAST_BORDER.match(held)
                if border is None and len(held) < 4 * _PIECE:
                    break  # more text may bring white space
                place = border.end() if border else len(held)
                yield held[:place]
                held = held[place:]
        if held:
            yield held
        if is_empty:
            raise DataError(f"{path} must hold text: got an empty file; name another one")


def fingerprint(pieces: Iterable[str]) -> TextDigest:
    """The checksum and length of a text; reads all of it once."""
    digest, characters, size = hashlib.sha256(), 0, 0
    for piece in pieces:
        encoded = piece.encode()
        digest.update(encoded)
        characters += len(piece)
        size += len(encoded)
    return TextDigest(digest.hexdigest(), characters, size)


@dataclass(frozen=True)
class TokenFile:
    """Token ids in a file of little-endian whole numbers, 2 or 4 bytes each, and a note beside it.

    unknown: how many of them stand for characters that the vocabulary does not have.
    """

    ids: npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
    unknown: int

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def write(
        cls, path: Path, pieces: Iterable[str], tokenizer: TextTokenizer, text: TextDigest, vocabulary: str
    ) -> TokenFile:
        """Encode the text; the file appears when it is whole.

        vocabulary: tells the tokenizer from others, for `read`.
        Errors: StorageError as write_atomically.
        """
        dtype = _dtype(tokenizer.vocab_size)
        count = unknown = checksum = 0

        def fill(file: BinaryIO) -> None:
            nonlocal count, unknown, checksum
            for piece in pieces:
                ids = tokenizer.encode_long(piece).astype(dtype)
                if tokenizer.unk_id is not None:
                    unknown += int((ids == tokenizer.unk_id).sum())
                count += len(ids)
                checksum = zlib.crc32(ids.data, checksum)
                file.write(ids.tobytes())

        def make(beside: Path) -> None:
            with beside.open("wb") as file:
                fill(file)

        try:
            _note(path).unlink(missing_ok=True)  # a note of an earlier text must never lie beside this one
        except OSError as error:
            raise StorageError(f"cannot write {_note(path)}: {error.strerror}; remove it") from error
        write_atomically(path, make)
        note = {
            **asdict(text),
            "vocabulary": vocabulary,
            "tokens": count,
            "unknown": unknown,
            "crc32": checksum,
        }
        write_text_atomically(_note(path), json.dumps(note))
        return cls(np.memmap(path, dtype=dtype, mode="r"), unknown)

    @classmethod
    def read(
        cls, path: Path, tokenizer: TextTokenizer, text: TextDigest, vocabulary: str
    ) -> TokenFile | None:
        """What `write` left of this text and tokenizer; None where there is none, or a damaged one."""
        try:
            note = cast("dict[str, Any]", json.loads(_note(path).read_text(encoding="utf-8")))
            wanted = {**asdict(text), "vocabulary": vocabulary}
            dtype = _dtype(tokenizer.vocab_size)
            if {name: note.get(name) for name in wanted} != wanted:
                return None
            if path.stat().st_size != note["tokens"] * dtype.itemsize:
                return None
            found = cls(np.memmap(path, dtype=dtype, mode="r"), int(note["unknown"]))
            return found if _checksum(found.ids) == note["crc32"] else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def _note(path: Path) -> Path:
    return path.with_suffix(".json")


def _checksum(ids: npt.NDArray[Any]) -> int:
    """Read piece by piece: a wrong id would end the training, or be learnt."""
    total = 0
    for start in range(0, len(ids), _PIECE):
        total = zlib.crc32(ids[start : start + _PIECE].data, total)
    return total


def _dtype(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")
