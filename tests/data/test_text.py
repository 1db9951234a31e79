"""The text is cut where it should be, encoded once, and known again."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.config import TextConfig
from headwise.data import token_file
from headwise.data.text import Text, first_ids, load_text, text_of
from headwise.data.text_tokenizer import TextTokenizer
from headwise.errors import DataError, RunError

TEXT = "".join(f"line {number} \u00e4\U0001f600\n" for number in range(57))


def nothing(message: str) -> None:
    raise AssertionError(message)


def loaded(
    folder: Path,
    text: str = TEXT,
    warn: Callable[[str], None] = nothing,
    name: str = "text.txt",
    **settings: object,
) -> Text:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode(), mtime=0) if name.endswith(".gz") else text.encode())
    config = replace(TextConfig(folder=str(folder), files=(name,)), **settings)  # type: ignore[arg-type]
    return load_text(config, 300, folder / "tokenizer.json", folder / "tokens", warn)


def parts(text: Text) -> list[str]:
    return text.tokenizer.decode([text.train.ids.tolist(), text.validation.ids.tolist()])


@pytest.mark.parametrize("tokens", ["characters", "bpe"])
@pytest.mark.parametrize("piece", [7, 1 << 20])
def test_the_cut_at_the_last_tenth_is_exact(
    tokens: str, piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_file, "_PIECE", piece)
    found = loaded(tmp_path, tokens=tokens)
    cut = len(TEXT) * 9 // 10
    assert parts(found) == [TEXT[:cut], TEXT[cut:]]
    assert found.validation_bytes == len(TEXT[cut:].encode())


@given(st.integers(10, 10**9))
def test_a_tenth_is_a_tenth_of_any_length(length: int) -> None:
    """What int(length * (1 - 0.1)) is trusted for."""
    assert int(length * (1 - 0.1)) == length * 9 // 10


def test_gzip_and_plain_are_one_text(tmp_path: Path) -> None:
    assert loaded(tmp_path).sha256 == loaded(tmp_path, name="text.gz").sha256
    assert loaded(tmp_path, TEXT.replace("\n", "\r\n")).sha256 == loaded(tmp_path).sha256


def test_validation_files_stand_for_the_last_tenth_and_unknown_characters_are_told(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("line zz\n")
    told: list[str] = []
    found = loaded(tmp_path, warn=told.append, validation_files=("other.txt",))
    assert parts(found) == [TEXT, "line <unk><unk>\n"]
    assert told == ["validation: 2 characters are not in the vocabulary and became <unk>"]
    again: list[str] = []
    loaded(tmp_path, warn=again.append, validation_files=("other.txt",))
    assert again == told


def test_bytes_learn_nothing_from_the_validation_part(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    text = "ab cd " * 90 + "xyzzy " * 10
    whole, other = (
        loaded(tmp_path / "a", text, tokens="bpe"),
        loaded(tmp_path / "b", text.replace("xyzzy", "vwuut"), tokens="bpe"),
    )
    known = [(folder / "tokenizer.json").read_bytes() for folder in (tmp_path / "a", tmp_path / "b")]
    assert known[0] == known[1] and whole.sha256 != other.sha256


def test_it_is_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = loaded(tmp_path)
    monkeypatch.setattr(token_file.TokenFile, "write", None)
    again = loaded(tmp_path)
    assert again.sha256 == first.sha256 and parts(again) == parts(first)


def test_a_changed_text_or_tokenizer_is_another_one(tmp_path: Path) -> None:
    first = loaded(tmp_path)
    other = loaded(tmp_path, TEXT.replace("line 3", "line 4"))
    assert parts(other)[0].count("line 4") > parts(first)[0].count("line 4") or other.sha256 != first.sha256
    TextTokenizer.train([TEXT], "characters", 0, ()).save(tmp_path / "tokenizer.json")
    assert loaded(tmp_path).sha256 not in (first.sha256, other.sha256)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"validation_share": 0.001}, None),
        ({"validation_share": 0.9999}, "the train text must not be empty: got"),
        ({"files": ("none.txt",)}, r"no file .*none\.txt: data\.text\.folder .* data\.text\.files how"),
        ({"validation_files": ("none.txt",)}, r"no file .*none\.txt: .* data\.text\.validation_files how"),
    ],
)
def test_what_cannot_be_used_is_refused(
    settings: dict[str, object], said: str | None, tmp_path: Path
) -> None:
    if said is None:
        assert len(loaded(tmp_path, **settings).validation) == 1
        return
    with pytest.raises(DataError, match=said):
        loaded(tmp_path, **settings)


def test_a_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(RunError, match=r"tokenizer\.json is damaged"):
        loaded(tmp_path)


def test_a_look_writes_nothing(tmp_path: Path) -> None:
    text = loaded(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ids = first_ids(TextConfig(folder=str(tmp_path), files=("text.txt",)), text.tokenizer, 50)
    assert text.tokenizer.decode([ids.tolist()]) == [TEXT[:50]]
    both = text_of(ids, text.tokenizer)
    assert np.array_equal(both.train.ids, ids) and np.array_equal(both.validation.ids, ids)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


IN_LITTLE_MEMORY = """
import resource, sys
from dataclasses import replace
from pathlib import Path
from headwise.config import DataConfig, ModelConfig, RunConfig, TextConfig, TrainConfig
from headwise.train.loop import train

folder = Path(sys.argv[1])
model = ModelConfig(d_model=8, num_heads=1, d_ff=8, num_encoder_layers=0, num_decoder_layers=1, max_length=64)
shortly = TrainConfig(max_steps=3, batch_tokens=640, warmup_steps=1, validate_every=3, samples=0)

def run(name):
    text = TextConfig(folder=str(folder), files=(f"{name}.txt",), validation_tokens=1000)
    train(RunConfig(run=str(folder / name), model=model, data=DataConfig("text", text=text), train=shortly))

run("small")  # all that a run of any size needs
status = Path("/proc/self/status").read_text()
used = 1024 * int(status.split("VmData:")[1].split()[0])
resource.setrlimit(resource.RLIMIT_DATA, (used + 48_000_000, used + 48_000_000))
run("large")
try:
    (folder / "large.txt").read_bytes()
except MemoryError:
    print("the text itself does not fit")
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the limit is set as Linux counts memory")
def test_a_text_larger_than_the_memory_trains(tmp_path: Path) -> None:
    """Of 64 MB, with 48 MB to spare; as ids it is twice as large."""
    line = "the cat sat on the mat, and the dog lay on the rug beside it\n" * 1000
    (tmp_path / "small.txt").write_text(line)
    (tmp_path / "large.txt").write_text(line * (64_000_000 // len(line)))
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "the text itself does not fit"
    assert (tmp_path / "large" / "model.safetensors").exists()
