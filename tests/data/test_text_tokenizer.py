"""Nothing may be lost between a text and its ids: line ends, spaces, emoji, marks that are only typed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers import models, processors

from headwise.data.text_tokenizer import CLASS, MASK, PADDING, UNKNOWN, TextTokenizer
from headwise.errors import ConfigError, RunError

MARKS = (PADDING, CLASS, MASK)
TEXTS = [
    "Two dogs play.\r\nIt  snows\t\n\n",
    "na\u00efve \U0001f600 \U0001f469\u200d\U0001f4bb <pad> <mask> <cls> </s>\r",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d \u2028\u00a0",
] * 3
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
KNOWN = sorted({character for text in TEXTS for character in text})


@pytest.fixture(scope="module", params=["characters", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> TextTokenizer:
    return TextTokenizer.train(TEXTS, request.param, 320, MARKS)


@pytest.fixture(scope="module")
def characters() -> TextTokenizer:
    return TextTokenizer.train(TEXTS, "characters", 0, MARKS)


@pytest.fixture(scope="module")
def in_bytes() -> TextTokenizer:
    return TextTokenizer.train(TEXTS, "bpe", 320, MARKS)


@given(st.lists(st.sampled_from([*KNOWN, "\r\n", "  ", "\n\n", *MARKS, "dogs"])).map("".join))
@example("")
@example(" ")
@example("\n")
@example("\r")
@example("  \U0001f469\u200d\U0001f4bb  \r\n")
def test_decoding_gives_the_text_back(tokenizer: TextTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.sampled_from(KNOWN)).map("".join))
@example("".join(KNOWN) + "\U0010ffff<pad>")
def test_a_long_text_has_the_same_ids(tokenizer: TextTokenizer, text: str) -> None:
    assert tokenizer.encode_long(text).tolist() == tokenizer.encode([text])[0]


def test_only_plain_characters_are_looked_up(characters: TextTokenizer, tmp_path: Path) -> None:
    assert characters._id_of_character is not None
    characters.save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    for key, value in (
        ("normalizer", {"type": "Lowercase"}),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("added_tokens", [dict(id=0, content="a", special=False, **dict.fromkeys(FLAGS, False))]),
    ):
        (tmp_path / "other.json").write_text(json.dumps(content | {key: value}))
        other = TextTokenizer.load(tmp_path / "other.json")
        assert other._id_of_character is None, key
        assert other.encode_long("A dog").tolist() == other.encode(["A dog"])[0]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_have_tokens_for_every_text(in_bytes: TextTokenizer, text: str) -> None:
    assert in_bytes.decode(in_bytes.encode([text])) == [text]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_character_is_one_token_and_strange_ones_are_unknown(
    characters: TextTokenizer, text: str
) -> None:
    (ids,) = characters.encode([text])
    assert len(ids) == len(text)
    assert [index == characters.unk_id for index in ids] == [c not in KNOWN for c in text]


@given(st.lists(st.sampled_from([*"<>/ padmsk", *MARKS, UNKNOWN, "</s>"])).map("".join))
def test_a_mark_that_is_typed_is_text(tokenizer: TextTokenizer, text: str) -> None:
    marks = {tokenizer.pad_id, tokenizer.begin_id, tokenizer.mask_id}
    assert len(marks) == 3 and None not in marks
    assert not marks & set(tokenizer.encode([text])[0])


def test_a_mark_that_the_text_is_full_of_is_still_text() -> None:
    tokenizer = TextTokenizer.train(["<pad><pad> <mask>"] * 50, "bpe", 400, MARKS)
    (ids,) = tokenizer.encode(["<pad><mask>"])
    assert not {tokenizer.pad_id, tokenizer.mask_id} & set(ids)


def test_marks_vanish_in_decoding_and_have_names(tokenizer: TextTokenizer) -> None:
    (ids,) = tokenizer.encode(["dogs play"])
    marks = [tokenizer.pad_id, tokenizer.begin_id, tokenizer.mask_id]
    assert tokenizer.decode([[*marks, *ids, *marks]]) == ["dogs play"]  # type: ignore[list-item]
    assert tokenizer.names(marks) == list(MARKS)  # type: ignore[arg-type]
    assert tokenizer.end_id is None
    assert "".join(tokenizer.names(ids)) == "dogs\u2581play"
    assert tokenizer.names([10**6]) == [str(10**6)]


def test_half_a_character_is_a_replacement_character(in_bytes: TextTokenizer) -> None:
    (ids,) = in_bytes.encode(["\u0b95"])  # never seen: three bytes
    assert len(ids) == 3
    assert in_bytes.decode([ids[:2]]) == ["\ufffd"]
    assert all(name and "\ufffd" not in name for name in in_bytes.names(ids))


def test_the_size_is_what_was_asked_or_what_the_text_has() -> None:
    assert TextTokenizer.train(TEXTS, "bpe", 270, MARKS).vocab_size == 270
    assert TextTokenizer.train(TEXTS, "characters", 5, MARKS).vocab_size == len(KNOWN) + 1 + len(MARKS)


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(ConfigError, match="must hold the 256 bytes and 3 marks: got 258; 259 is the least"):
        TextTokenizer.train(TEXTS, "bpe", 258, MARKS)
    exact = TextTokenizer.train(TEXTS, "bpe", 259, MARKS)
    assert exact.decode(exact.encode(TEXTS)) == TEXTS


def test_a_line_without_spaces_is_learnt_in_seconds_and_whole() -> None:
    """A line of genes: the trainer's time grows with the square of a word."""
    genes = "".join(np.random.default_rng(1).choice(list("ACGT"), 300_000))
    began = time.monotonic()
    tokenizer = TextTokenizer.train([genes, " \n" * 150_000], "bpe", 280, MARKS)
    assert time.monotonic() - began < 20  # minutes, where it is not cut
    (ids,) = tokenizer.encode([genes])
    assert tokenizer.decode([ids]) == [genes] and len(ids) < 0.6 * len(genes)


def test_pieces_learn_what_the_whole_learns(tmp_path: Path) -> None:
    for kind in ("characters", "bpe"):
        for name, texts in (
            ("whole", ["one two\nthree two\n" * 9]),
            ("pieces", ["one two\nthree two\n"] * 9),
        ):
            TextTokenizer.train(texts, kind, 280, MARKS).save(tmp_path / f"{kind}-{name}")
        assert (tmp_path / f"{kind}-whole").read_bytes() == (tmp_path / f"{kind}-pieces").read_bytes()


def test_saved_and_loaded_it_is_the_same(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "a.json")
    loaded = TextTokenizer.load(tmp_path / "a.json")
    assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert (loaded.vocab_size, loaded.pad_id, loaded.unk_id) == (
        tokenizer.vocab_size,
        tokenizer.pad_id,
        tokenizer.unk_id,
    )
    loaded.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_a_public_vocabulary_brings_its_marks_template_and_no_cutting(tmp_path: Path) -> None:
    names = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "a"]
    library = LibraryTokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, "[UNK]"))
    library.post_processor = processors.TemplateProcessing(
        "[CLS] $A [SEP]", None, [("[CLS]", 1), ("[SEP]", 2)]
    )
    library.enable_padding(length=8)
    library.enable_truncation(2)
    library.save(str(tmp_path / "tokenizer.json"))
    loaded = TextTokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.pad_id, loaded.begin_id, loaded.end_id, loaded.mask_id, loaded.unk_id) == (0, 1, 2, 3, 4)
    assert loaded.encode(["a"]) == [[5]]
    assert loaded.encode(["a"], framed=True) == [[1, 5, 2]]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"model": 1}'])
def test_a_damaged_tokenizer_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"tokenizer\.json is damaged"):
        TextTokenizer.load(path)


@given(st.floats(0, 1, exclude_max=True))
def test_a_torn_tokenizer_is_never_loaded(
    tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    path = tmp_path_factory.getbasetemp() / "torn.json"
    tokenizer.save(path)
    content = path.read_bytes()
    json.loads(content)
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(RunError, match=r"torn\.json"):
        TextTokenizer.load(path)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"cannot read the tokenizer .*none\.json: No such file.*; train first"
    ):
        TextTokenizer.load(tmp_path / "none.json")
