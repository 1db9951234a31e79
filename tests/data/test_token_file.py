"""A text in pieces is the text, its ids on disk are its ids, and half a file is never read."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwise.data import token_file
from headwise.data.text_tokenizer import MASK, PADDING, TextTokenizer
from headwise.data.token_file import TextDigest, TokenFile, fingerprint, read_pieces
from headwise.errors import DataError, StorageError

TEXT = "Two dogs  play.\n\n\n  It snows;\n\tit\u00a0has \n snowed na\u00efve \U0001f600s' don't \n" * 5


@pytest.fixture(scope="module", params=["characters", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    return TextTokenizer.train([TEXT], request.param, 330, (PADDING, MASK))


@pytest.fixture(scope="module")
def in_bytes() -> TextTokenizer:
    return TextTokenizer.train([TEXT], "bpe", 330, (PADDING, MASK))


WORDS = st.sampled_from(["ab", "x", "'s", "1.", "\u4eca", "\U0001f600", "d'", "-"])
SPACES = st.sampled_from([" ", "\n", "  ", "\n\n", " \t", "\n ", " \u00a0"])


def pieces_of(text: str, size: int, folder: Path) -> list[str]:
    path = folder / "text.txt"
    path.write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_file, "_PIECE", size)
        return list(read_pieces([path]))


@given(st.lists(st.tuples(WORDS, SPACES), min_size=1), st.integers(2, 9))
def test_pieces_encode_as_the_whole_does(
    in_bytes: TextTokenizer, tmp_path_factory: pytest.TempPathFactory, words: list[tuple[str, str]], size: int
) -> None:
    text = "".join(word + space for word, space in words)
    pieces = pieces_of(text, size, tmp_path_factory.getbasetemp())
    assert "".join(pieces) == text
    assert len(pieces) > 1 or len(text) < 8 * size
    assert [index for ids in in_bytes.encode(pieces) for index in ids] == in_bytes.encode([text])[0]


def test_a_cut_anywhere_would_not_do(in_bytes: TextTokenizer) -> None:
    """The law above has teeth."""
    cut = in_bytes.encode(["Two do", "gs play"])
    assert [*cut[0], *cut[1]] != in_bytes.encode(["Two dogs play"])[0]


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\ufeff"), min_size=1),
    st.integers(1, 5),
)
@example("\u4eca" * 50, 2)
@example(" " * 40, 3)
def test_pieces_are_the_text_whatever_it_holds(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    pieces = pieces_of(text, size, tmp_path_factory.getbasetemp())
    assert "".join(pieces) == text and all(pieces)


@pytest.mark.parametrize("end", ["", "\n", "\r", "\n\n", "\r\n"])
def test_gzip_is_plain_whatever_the_end(end: str, tmp_path: Path) -> None:
    content = (TEXT + end).encode()
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.gz").write_bytes(gzip.compress(content, mtime=0))
    plain, packed = ("".join(read_pieces([tmp_path / name])) for name in ("a.txt", "b.gz"))
    assert plain == packed == (TEXT + end).replace("\r\n", "\n")


def test_files_are_read_in_order_as_one_text(tmp_path: Path) -> None:
    for name, text in (("b", "one "), ("a", "two\n"), ("c", "three")):
        (tmp_path / name).write_text(text)
    assert "".join(read_pieces([tmp_path / name for name in "bac"])) == "one two\nthree"


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_a_file_without_text_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataError, match="a must hold text: got an empty file"):
        list(read_pieces([tmp_path / "a"]))


def test_a_fingerprint_does_not_depend_on_the_pieces() -> None:
    assert fingerprint([TEXT]) == fingerprint(TEXT) != fingerprint([TEXT[:-1]])
    assert fingerprint([TEXT]).characters == len(TEXT)


def written(path: Path, tokenizer: TextTokenizer, text: str = TEXT, name: str = "v") -> TokenFile:
    pieces = [text[n : n + 16] for n in range(0, len(text), 16)]
    return TokenFile.write(path, pieces, tokenizer, fingerprint([text]), name)


def test_what_is_written_is_read_through_the_map(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    """The file is many times as long as a piece."""
    made = written(tmp_path / "a.tokens", tokenizer)
    found = TokenFile.read(tmp_path / "a.tokens", tokenizer, fingerprint([TEXT]), "v")
    assert found is not None and isinstance(found.ids, np.memmap)
    pieces = [TEXT[n : n + 16] for n in range(0, len(TEXT), 16)]
    assert [*found.ids] == [*made.ids] == [index for ids in tokenizer.encode(pieces) for index in ids]
    assert len(found) == len(found.ids) and found.unknown == 0
    assert tokenizer.decode([found.ids.tolist()]) == [TEXT]


def test_unknown_characters_are_counted_and_remembered(tmp_path: Path) -> None:
    tokenizer = TextTokenizer.train(["ab"], "characters", 0, ())
    assert written(tmp_path / "a.tokens", tokenizer, "abcab" * 9).unknown == 9
    found = TokenFile.read(tmp_path / "a.tokens", tokenizer, fingerprint(["abcab" * 9]), "v")
    assert found is not None and found.unknown == 9


def test_a_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    characters = "".join(map(chr, range(0x4E00, 0x4E00 + 20_000))) + "".join(
        map(chr, range(0x20000, 0x2C000))
    )
    tokenizer = TextTokenizer.train([characters], "characters", 0)
    assert tokenizer.vocab_size > 1 << 16
    text = characters[-100:]
    found = written(tmp_path / "a.tokens", tokenizer, text)
    assert found.ids.dtype == np.uint32 and tokenizer.decode([found.ids.tolist()]) == [text]


@pytest.mark.parametrize(
    "damage", ["shorter", "longer", "no note", "half a note", "another note", "list", "another id"]
)
def test_what_does_not_belong_together_is_not_read(
    damage: str, tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    path, note = tmp_path / "a.tokens", tmp_path / "a.json"
    written(path, tokenizer)
    if damage == "shorter":
        path.write_bytes(path.read_bytes()[:-2])
    elif damage == "longer":
        path.write_bytes(path.read_bytes() + b"xx")
    elif damage == "no note":
        note.unlink()
    elif damage == "half a note":
        note.write_bytes(note.read_bytes()[:20])
    elif damage == "another note":
        note.write_text(json.dumps({**json.loads(note.read_text()), "tokens": "many"}))
    elif damage == "another id":
        ids = path.read_bytes()
        path.write_bytes(ids[:20] + bytes([ids[20] ^ 1]) + ids[21:])
    else:
        note.write_text("[]")
    assert TokenFile.read(path, tokenizer, fingerprint([TEXT]), "v") is None


def test_another_text_or_vocabulary_is_not_read(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "a.tokens"
    written(path, tokenizer)
    start = fingerprint([TEXT])
    assert TokenFile.read(path, tokenizer, start, "w") is None
    assert TokenFile.read(path, tokenizer, TextDigest(start.sha256, 3, start.size), "v") is None
    assert TokenFile.read(path, tokenizer, fingerprint(["x" * len(TEXT)]), "v") is None
    assert TokenFile.read(tmp_path / "none", tokenizer, start, "v") is None


class Crash(BaseException):
    """Nothing may catch it."""


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_an_interrupted_write_is_never_read(
    number: int, tokenizer: TextTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another text lies there; the new one comes whole or not at all, at whatever call the process dies."""
    path = tmp_path / "a.tokens"
    written(path, tokenizer)
    new = TEXT[::-1]
    calls = 0
    sync, replace = os.fsync, os.replace

    def dying(function: Callable[..., object]) -> Callable[..., object]:
        def call(*given: Any) -> object:
            nonlocal calls
            calls += 1
            if calls == number:
                raise Crash
            return function(*given)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", dying(sync))
        patch.setattr(os, "replace", dying(replace))
        with pytest.raises(Crash):
            written(path, tokenizer, new)
    for text in (TEXT, new):
        found = TokenFile.read(path, tokenizer, fingerprint([text]), "v")
        assert found is None or tokenizer.decode([found.ids.tolist()]) == [text]


def test_a_failing_text_leaves_no_file(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield TEXT
        raise DataError("line 7 is damaged; copy it again")

    with pytest.raises(DataError, match="line 7"):
        TokenFile.write(tmp_path / "a.tokens", pieces(), tokenizer, fingerprint([TEXT]), "v")
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written_is_told(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "a.json").mkdir()
    for path in (tmp_path / "file" / "a.tokens", tmp_path / "a.tokens"):
        with pytest.raises(StorageError, match=r"cannot write .*a\.json: .*; remove it"):
            written(path, tokenizer)
