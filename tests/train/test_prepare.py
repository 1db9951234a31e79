"""Text to ids: one tokenizer a run, and a fingerprint of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwise.errors import RunError
from headwise.train.prepare import prepare
from tiny_run import tiny


def nothing(_: str) -> None:
    return None


def test_the_tokenizer_is_trained_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    first = prepare(tiny(tmp_path), path, nothing)
    before = path.read_bytes(), path.stat().st_mtime_ns
    second = prepare(tiny(tmp_path), path, nothing)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert first.fingerprint() == second.fingerprint()
    assert len(first.train.source) == 64
    assert len(first.validation_pairs) == len(first.validation.source) == 8


def test_the_fingerprint_tells_texts_and_tokenizers_apart(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    data = config.data
    others = [
        replace(config, data=replace(data, dates=replace(data.dates, seed=2))),
        replace(config, data=replace(data, vocab_size=150)),
    ]
    paths = [tmp_path / str(number) for number in range(3)]
    prints = {
        prepare(c, path, nothing).fingerprint() for c, path in zip([config, *others], paths, strict=True)
    }
    assert len(prints) == 3


def test_a_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{")
    with pytest.raises(RunError, match=r"tokenizer\.json is damaged"):
        prepare(tiny(tmp_path), path, nothing)
    assert path.read_text() == "{"


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    config = tiny(tmp_path)
    told: list[str] = []
    prepare(replace(config, model=replace(config.model, max_length=8)), tmp_path / "t", told.append)
    assert any("pairs left out: over 8 tokens" in line and line.startswith("train: ") for line in told)
