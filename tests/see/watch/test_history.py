"""Samples in a file: what was written comes back; a damaged file is no history."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from headwise.see.watch.history import read_history, write_history
from headwise.see.watch.measure import NormSeen
from headwise.see.watch.sample import Sample
from see.watch.test_sample import SAMPLE


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    write_history(path, [SAMPLE, replace(SAMPLE, step=8)])
    assert read_history(path) == [SAMPLE, replace(SAMPLE, step=8)]
    assert len(path.read_text().splitlines()) == 2


def test_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    write_history(path, [replace(SAMPLE, loss=math.inf, norms={"n": NormSeen(math.nan, 1.0, 1.0)})])
    assert "NaN" not in path.read_text() and "Infinity" not in path.read_text()
    (read,) = read_history(path)
    assert read.loss is None and math.isnan(read.norms["n"].std)


def test_no_file_and_a_damaged_one_are_no_history(tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    assert read_history(path) == []
    for text in (
        "{",
        "[]\n",
        '{"step": 1}\n',
        "null\n",
        "\udce9".encode("utf-8", "surrogateescape").decode("latin1"),
    ):
        path.write_text(text, encoding="utf-8")
        assert read_history(path) == []


@pytest.mark.parametrize(
    "change",
    [
        {"step": None}, {"step": "3"}, {"loss": "abc"}, {"logged": {"a": "b"}}, {"still": [1]}, {"norms": []},
        {"layers": {"a": {"activation": "x", "gradient": None, "update": None}}},
    ],
)  # fmt: skip
def test_a_line_of_other_types_is_damaged(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    write_history(path, [Sample(3, loss=1.0, logged={"a": 2.0})])
    assert read_history(path) == [Sample(3, loss=1.0, logged={"a": 2.0})]
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}) + "\n")
    assert read_history(path) == []
