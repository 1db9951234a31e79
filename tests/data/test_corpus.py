from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.config import DataConfig, DatesConfig, ParallelConfig
from headwise.data.corpus import encode_pairs, load_corpus
from headwise.data.pairs import Pairs
from headwise.data.tokenizer import Tokenizer
from headwise.errors import DataError

MULTI30K = Path(__file__).parents[3] / "shared" / "data" / "multi30k"


def write_corpus(folder: Path, **texts: str) -> DataConfig:
    """Ten training pairs and two validation pairs; `texts` replaces or adds files by name."""
    files = {
        "train_source": "".join(f"sentence {n}\n" for n in range(10)),
        "train_target": "".join(f"Satz {n}\n" for n in range(10)),
        "validation_source": "other 1\nother 2\n",
        "validation_target": "anders 1\nanders 2\n",
    } | texts
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return DataConfig(
        kind="parallel", parallel=ParallelConfig(folder=str(folder), **{name: name for name in files})
    )


def test_parallel_files_become_train_and_validation(tmp_path: Path):
    corpus = load_corpus(write_corpus(tmp_path, test_source="third 1\n"))
    assert corpus.train.source[9] == "sentence 9" and corpus.train.target[9] == "Satz 9"
    assert corpus.validation == Pairs(["other 1", "other 2"], ["anders 1", "anders 2"])
    assert (corpus.test, corpus.tags, corpus.warnings) == (None, (), ())


def test_home_and_absolute_names_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_corpus(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "v").write_bytes(gzip.compress(b"far\nfarther\n", mtime=0))
    names = ParallelConfig("~", "train_source", "train_target", str(elsewhere / "v"), "validation_target")
    corpus = load_corpus(DataConfig(kind="parallel", parallel=names))
    assert corpus.validation.source == ["far", "farther"]


def test_warnings_of_both_sets_are_kept(tmp_path: Path):
    corpus = load_corpus(
        write_corpus(tmp_path, train_source="a\n\n", train_target="A\nB\n", validation_target="\nanders 2\n")
    )
    assert corpus.warnings == (
        "1 of 2 pairs of train_source and train_target left out: one side is empty",
        "1 of 2 pairs of validation_source and validation_target left out: one side is empty",
    )


def test_an_overlap_is_counted_with_an_example(tmp_path: Path):
    config = write_corpus(
        tmp_path,
        validation_source="sentence 4 \nother\n",
        test_source="third\n\nsentence 1\nsentence 2\nfourth\n",
    )
    assert load_corpus(config).warnings == (
        "1 of 2 validation sentences are also training sentences, for example 'sentence 4'",
        "2 of 4 test sentences are also training sentences, for example 'sentence 1'",
    )


def test_a_test_set_that_is_mostly_training_text_is_refused(tmp_path: Path):
    config = write_corpus(tmp_path, test_source="third\nsentence 1\nsentence 2\n")
    with pytest.raises(
        DataError, match=r"got 2 of 3 test sentences are also training .* take .*test_source out"
    ):
        load_corpus(config)


@pytest.mark.parametrize("name", ["train_target", "validation_source", "test_source"])
def test_a_missing_file_is_named(tmp_path: Path, name: str):
    config = write_corpus(tmp_path, test_source="third\n")
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=f"no file .*{name}: data.parallel.folder says where"):
        load_corpus(config)


def test_dates_come_with_a_tag_for_each_language():
    sizes = DatesConfig(languages=("zh", "de"), train_size=200, validation_size=20, test_size=30)
    corpus = load_corpus(DataConfig(dates=sizes))
    assert corpus.tags == ("<zh>", "<de>")
    assert (len(corpus.train), len(corpus.validation)) == (200, 20)
    assert corpus.test is not None and len(corpus.test) == 30
    assert all(source.startswith(corpus.tags) for source in corpus.train.source)
    tokenizer = Tokenizer.train(corpus.train.source + corpus.train.target, 512, corpus.tags)
    source_ids, target_ids, _ = encode_pairs(corpus.train, tokenizer, 128)
    tag_ids = {tokenizer.encode([tag])[0][0] for tag in corpus.tags}
    assert {ids[0] for ids in source_ids} == tag_ids
    assert tokenizer.decode(target_ids) == corpus.train.target


def test_parallel_text_needs_no_babel():
    code = "import sys, headwise.data.corpus; sys.exit('babel' in sys.modules)"
    environment = {"PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["abc", "1234567890"], 32)


def test_encoding_keeps_pairs_aligned_and_leaves_out_long_ones(tokenizer: Tokenizer):
    # each side has one token for the leading space, one for each digit, and the end mark
    pairs = Pairs(["1", "123", "1234", "2"], ["12", "321", "1", "1234"])
    source, target, warnings = encode_pairs(pairs, tokenizer, 5)
    assert tokenizer.decode(source) == ["1", "123"]
    assert tokenizer.decode(target) == ["12", "321"]
    assert max(len(ids) for ids in source + target) + 1 == 5
    assert warnings == ("2 of 4 pairs left out: over 5 tokens, end mark included",)


def test_encoding_counts_unknown_characters(tokenizer: Tokenizer):
    source, _, warnings = encode_pairs(Pairs(["1?2!", "1"], ["?", "2"]), tokenizer, 50)
    assert source[0].count(tokenizer.unk_id) == 2
    assert warnings == ("3 characters are not in the vocabulary and became <unk>",)
    assert encode_pairs(Pairs(["1"], ["2"]), tokenizer, 50)[2] == ()


def test_encoding_refuses_to_end_with_nothing(tokenizer: Tokenizer):
    with pytest.raises(DataError, match=r"max_length=3 tokens: got 1 pairs, all longer; raise max_length"):
        encode_pairs(Pairs(["12"], ["1"]), tokenizer, 3)


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="Multi30k is not beside the repository")
def test_multi30k_is_read_and_comes_back_from_its_ids():
    config = ParallelConfig(folder=str(MULTI30K), test_source="test_2016_flickr.en.gz")
    corpus = load_corpus(DataConfig(kind="parallel", parallel=config))
    assert (len(corpus.train), len(corpus.validation)) == (29_000, 1_014)
    assert [warning.split(",")[0] for warning in corpus.warnings] == [
        "1 of 1014 validation sentences are also training sentences"
    ]
    tokenizer = Tokenizer.train(corpus.train.source + corpus.train.target, 2_000)
    assert tokenizer.vocab_size == 2_000
    _, target_ids, warnings = encode_pairs(corpus.validation, tokenizer, 128)
    assert tokenizer.decode(target_ids) == corpus.validation.target
    assert warnings == ()
