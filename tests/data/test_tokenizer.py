from __future__ import annotations

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwise.data.tokenizer import SPECIALS, Tokenizer
from headwise.errors import ConfigError, RunError

TEXTS = [
    "The weather is nice today, and the weather was nice yesterday.",
    "<de> Das Wetter ist heute schön; über Öl und Äpfel läuft man weiß Gott nicht.",
    "<zh> 今天天气很好。2021年3月5日,天气也很好!",
    "Emoji \U0001f600 and \U0001f469\u200d\U0001f4bb, 12.5 % of $3\u00a0000\u202f\u20ac",
    "\u2028 \t tab <pad> <eos> a@b",
    "cafe\u0301 na\u00efve \u2581 \u2047",
] * 3
TAGS = ("<de>", "<zh>")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, 256, TAGS)


# the characters of a tag in front are no part of the text
UNTAGGED = [text.removeprefix("<de>").removeprefix("<zh>") for text in TEXTS]
KNOWN = sorted({character for text in UNTAGGED for character in unicodedata.normalize("NFC", text)})
SNIPPETS = [" ", "  ", "weather", "schön", "cafe\u0301", "天气", "\U0001f469\u200d\U0001f4bb", *SPECIALS]


@given(st.lists(st.one_of(st.sampled_from(KNOWN), st.sampled_from(SNIPPETS))).map("".join))
@example("")
@example(" ")
@example("  leading, double  and trailing  ")
@example("\u2581 \u2047")
def test_decoding_gives_the_text_back(tokenizer: Tokenizer, text: str):
    text = "x" + text if text.startswith(TAGS) else text
    text = "".join(c for c in unicodedata.normalize("NFC", text) if c in KNOWN)
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


@given(st.text())
def test_any_text_encodes_and_only_unknown_characters_are_lost(tokenizer: Tokenizer, text: str):
    text = " " + text
    normal = unicodedata.normalize("NFC", text)
    (ids,) = tokenizer.encode([text])
    expected = "".join(character if character in KNOWN else "\u2047" for character in normal)
    assert tokenizer.decode([ids]) == [expected]
    assert ids.count(tokenizer.unk_id) == sum(character not in KNOWN for character in normal)


@given(st.lists(st.sampled_from([*"<>/ pademoubsnkzh", *SPECIALS, *TAGS])).map("".join))
def test_text_never_becomes_a_special_token_behind_the_start(tokenizer: Tokenizer, text: str):
    (ids,) = tokenizer.encode(["x" + text])
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, *range(4, 4 + len(TAGS))}
    assert not special & set(ids)


def test_decomposed_text_has_the_ids_of_composed_text(tokenizer: Tokenizer):
    composed, decomposed = tokenizer.encode(["schön", "scho\u0308n"])
    assert composed == decomposed
    assert tokenizer.decode([decomposed]) == ["schön"]


def test_a_tag_in_front_is_one_id_and_takes_its_space(tokenizer: Tokenizer):
    tagged, close, plain, inside, twice = tokenizer.encode(
        ["<zh> nice weather", "<zh>nice weather", "nice weather", "nice <zh> weather", "<de> <zh> nice"]
    )
    assert tagged == close == [5, *plain]
    assert 5 not in inside
    assert twice[0] == 4 and 5 not in twice
    assert tokenizer.decode([tagged]) == ["nice weather"]
    assert tokenizer.tags == TAGS


def test_special_ids_are_fixed_and_vanish_in_decoding(tokenizer: Tokenizer):
    assert tokenizer.names(range(6)) == [*SPECIALS, *TAGS]
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id) == (0, 1, 2, 3)
    (ids,) = tokenizer.encode(["the weather"])
    assert tokenizer.decode([[1, *ids, 2, 0, 0], [3], []]) == ["the weather", "\u2047", ""]


def test_pieces_are_readable_and_one_for_each_id(tokenizer: Tokenizer):
    text = "<de> nice weather, 12.5 \u2603"
    pieces = tokenizer.pieces(text)
    assert len(pieces) == len(tokenizer.encode([text])[0])
    assert pieces[0] == "<de>" and pieces[-1] == "<unk>"
    assert "".join(pieces[1:-1]) == "\u2581nice\u2581weather,\u258112.5\u2581"


def test_words_are_merged_but_digits_and_punctuation_stand_alone():
    tokenizer = Tokenizer.train(["weather 2021, weather 2021, weather 2021,"] * 9, 64)
    assert tokenizer.pieces("weather 2021,") == ["\u2581weather", "\u2581", "2", "0", "2", "1", ","]


def test_more_texts_than_one_chunk_keep_their_order(tokenizer: Tokenizer):
    texts = [f"weather {number}" for number in (0, 1, 12, 120, 2, 21)] * 800
    assert (
        tokenizer.decode(tokenizer.encode(texts))
        == [tokenizer.decode(tokenizer.encode([text]))[0] for text in texts[:6]] * 800
    )


def test_saved_and_loaded_it_is_the_same(tokenizer: Tokenizer, tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert (loaded.vocab_size, loaded.tags) == (tokenizer.vocab_size, tokenizer.tags)
    assert loaded.decode(loaded.encode(TEXTS)) == tokenizer.decode(tokenizer.encode(TEXTS))
    again = tmp_path / "again.json"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["again.json", "tokenizer.json"]


TRAIN = """
import sys
from pathlib import Path
from headwise.data.tokenizer import Tokenizer
# many pairs of equal frequency, so that ties decide nearly every merge
texts = [chr(97 + a) + chr(97 + b) + chr(97 + c) for a in range(26) for b in range(12) for c in range(9)] * 2
Tokenizer.train(texts[::-1] if sys.argv[2] == "back" else texts, 300).save(Path(sys.argv[1]))
"""


def test_training_ignores_threads_hash_seeds_and_the_order_of_texts(tmp_path: Path):
    saved: list[bytes] = []
    for name, seed, threads, order in (
        ("a", "1", "false", "on"),
        ("b", "77", "true", "on"),
        ("c", "2", "true", "back"),
    ):
        environment = os.environ | {"PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": threads}
        run = subprocess.run(
            [sys.executable, "-c", TRAIN, str(tmp_path / name), order],
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
        )
        assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
        saved.append((tmp_path / name).read_bytes())
    assert saved[0] == saved[1] == saved[2]
    assert len(json.loads(saved[0])["model"]["vocab"]) == 300


def test_a_vocabulary_smaller_than_the_alphabet_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"got vocab_size=9, the text has 6 characters and there are 5 special tokens; 11 is",
    ):
        Tokenizer.train(["abcde"], 9, ["<de>"])
    exact = Tokenizer.train(["abcde"], 11, ["<de>"])
    assert exact.decode(exact.encode(["edcba"])) == ["edcba"]


def test_the_vocabulary_is_as_large_as_asked_when_the_text_allows(tokenizer: Tokenizer):
    assert 4 + len(TAGS) + len(KNOWN) < tokenizer.vocab_size <= 256
    assert Tokenizer.train(TEXTS, 110, TAGS).vocab_size == 110


@pytest.mark.parametrize("tags", [("de",), ("<pad>",), ("<de>", "<de>"), ("<>",), ("<d e>",), ("",)])
def test_tags_that_could_be_mistaken_are_refused(tags: tuple[str, ...]):
    with pytest.raises(ConfigError, match="a tag must look like <de>"):
        Tokenizer.train(TEXTS, 256, tags)


def _damage(content: dict[str, object], kind: str) -> str:
    model = content["model"]
    assert isinstance(model, dict)
    if kind == "no specials":
        model["vocab"] = {name.replace("<eos>", "</s>"): index for name, index in model["vocab"].items()}
    elif kind == "specials elsewhere":
        model["vocab"] |= {"<pad>": 1, "<bos>": 0}
    elif kind == "gap":
        model["vocab"]["new"] = 10_000
    elif kind == "text for an id":
        model["vocab"]["a"] = "a"
    elif kind == "merge of unknown pieces":
        model["merges"].append(["qqq", "q"])
    elif kind == "half a merge":
        model["merges"].append(["q"])
    elif kind == "no model":
        del content["model"]
    elif kind == "other boundaries":
        content["pre_tokenizer"] = {"type": "ByteLevel"}
    return json.dumps(content)


@pytest.mark.parametrize(
    "kind",
    [
        "no specials",
        "specials elsewhere",
        "gap",
        "text for an id",
        "merge of unknown pieces",
        "half a merge",
        "no model",
        "other boundaries",
    ],
)
def test_a_foreign_tokenizer_is_named(tokenizer: Tokenizer, tmp_path: Path, kind: str):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    path.write_text(_damage(json.loads(path.read_text()), kind))
    with pytest.raises(RunError, match=r"tokenizer\.json must be a tokenizer that headwise saved"):
        Tokenizer.load(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"model": 1}']
)
def test_a_damaged_tokenizer_is_named(tmp_path: Path, content: bytes):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"tokenizer\.json"):
        Tokenizer.load(path)


@given(cut=st.integers(0, 3000))
def test_a_torn_tokenizer_is_never_loaded(
    tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory, cut: int
):
    path = tmp_path_factory.getbasetemp() / "torn.json"
    tokenizer.save(path)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(RunError, match=r"torn\.json is damaged"):
        Tokenizer.load(path)


def test_a_missing_tokenizer_is_named(tmp_path: Path):
    with pytest.raises(RunError, match=r"cannot read the tokenizer .*none\.json: No such file"):
        Tokenizer.load(tmp_path / "none.json")
