"""Texts and classes out of tables and JSON lines, and every way in which they can be wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.config import LabelledConfig
from headwise.data.labelled import Labelled, load_labelled, read_labelled, split_by_class
from headwise.errors import DataError

FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")).filter(str.strip)


def nothing(message: str) -> None:
    raise AssertionError(message)


@given(st.lists(st.tuples(FIELD, FIELD), min_size=1), st.sampled_from([("csv", ","), ("tsv", "\t")]))
def test_whatever_a_table_quotes_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], kind: tuple[str, str]
) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=kind[1], lineterminator="\n").writerows(
        [("id", "label", "text"), *(("7", b, a) for a, b in rows)]
    )
    path = tmp_path_factory.getbasetemp() / f"table.{kind[0]}"
    path.write_bytes(out.getvalue().encode())
    found = read_labelled(path, "text", "label")
    assert list(zip(found.texts, found.labels, strict=True)) == rows


@given(st.lists(st.tuples(FIELD, FIELD), min_size=1))
def test_json_lines_are_read(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    lines = [json.dumps({"y": b, "x": a, "more": None}) for a, b in rows]
    path.write_text("\n\n".join(lines), encoding="utf-8")
    found = read_labelled(path, "x", "y")
    assert list(zip(found.texts, found.labels, strict=True)) == rows


def read(folder: Path, content: str, name: str = "a.csv") -> Labelled:
    path = folder / name
    path.write_bytes(gzip.compress(content.encode(), mtime=0) if name.endswith(".gz") else content.encode())
    return read_labelled(path, "text", "label")


def test_line_ends_inside_quotes_empty_lines_and_gzip(tmp_path: Path) -> None:
    content = 'text,label\r\n"one ""two"",\r\nthree",good\r\n\r\nfour,bad\r\n'
    for name in ("a.csv", "A.CSV", "a.csv.gz"):
        found = read(tmp_path, content, name)
        assert found == Labelled(['one "two",\nthree', "four"], ["good", "bad"]) and len(found) == 2


def test_numbers_and_truths_are_classes_as_they_are_written(tmp_path: Path) -> None:
    labels = ["1", "true", "-0.5", "1.10", "1e999", "9" * 5_000]
    lines = [f'{{"text": "x", "label": {label}}}' for label in [*labels, '"1"']]
    assert read(tmp_path, "\n".join(lines), "a.ndjson").labels == [*labels, "1"]


def test_columns_that_are_not_asked_for_may_have_any_names(tmp_path: Path) -> None:
    assert read(tmp_path, "text,,label,\na,1,b,2\n") == Labelled(["a"], ["b"])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "", r"a\.csv must hold examples: got none; give a text and a class in each row"),
        ("a.csv", "text,label\n", "must hold examples: got none"),
        ("a.jsonl", "\n\n", "must hold examples: got none"),
        (
            "a.csv",
            "text,class\nx,y\n",
            r"line 2 has no 'label': it has 'text', 'class'; name the columns with data\.labelled\.text",
        ),
        ("a.tsv", "text,label\nx,y\n", "line 2 has no 'text': it has 'text,label'"),
        ("a.csv", "text,label\nx,y\nx\n", "line 3 must have 2 fields as the header has: got 1; quote fields"),
        ("a.csv", "text,label\na,b,c\n", "line 2 must have 2 fields as the header has: got 3"),
        ("a.csv", 'text,label\n"a"b,c\n', r"line 2 is no CSV row: .*; correct it"),
        (
            "a.csv.gz",
            'text,label\n"a,c\n',
            r"line 2 is no CSV row: a quote that opens a field is never closed; correct",
        ),
        ("a.csv", "text,label\n ,y\n", "line 2: 'text' must be text: got ' '; fill it in or drop the line"),
        ("a.csv", 'text,label\nx,""\n', "line 2: 'label' must be text: got ''"),
        ("a.jsonl", '{"text": null, "label": "a"}', "line 1: 'text' must be text: got null; fill it in"),
        ("a.jsonl", '{"text": "a", "label": ["b"]}', r"line 1: 'label' must be text: got \['b'\]"),
        ("a.jsonl", '{"label": "a"}', "line 1 has no 'text': it has 'label'"),
        ("a.jsonl", '\n{"text": ', "line 2 is no JSON: .*; correct it"),
        (
            "a.csv",
            'text,label\na,b\n\n"c\n' + "d,e\n" * 9,
            "line 4 is no CSV row: a quote that opens a field",
        ),
        ("a.csv", 'text,label\n"a\nb",c\nd\n', "line 4 must have 2 fields"),
        ("a.csv", 'text,label\n"a\nb",\n', "line 2: 'label' must be text: got ''"),
        ("a.csv", "text,label\ra,b\r", "line 1 is no CSV row: it holds a carriage return where no line ends"),
        ("a.csv", "text,label,label\na,b,c\n", "a column must have a name of its own: got 2 called 'label'"),
        ("a.tsv", "text\tlabel\ttext\na\tb\tc\n", "got 2 called 'text'; rename or drop the others"),
        ("a.csv", f"{'x' * 99},label\na,b\n", rf"has no 'text': it has '{'x' * 56}\.\.\., 'label'; name"),
        ("a.jsonl", "{}", "line 1 has no 'text': it has nothing; name the columns"),
        ("a.jsonl", '{"text": ["' + "x" * 99 + '"], "label": 1}', rf"got \['{'x' * 55}\.\.\.; fill it in"),
        ("a.jsonl", '{"text": "a", "label": NaN}', "line 1 is no JSON: NaN is no number of JSON; correct it"),
        ("a.jsonl", '{"text": "a", "label": -Infinity}', "-Infinity is no number of JSON"),
        ("a.jsonl", "[" * 100_000, "line 1 is no JSON"),
        ("a.jsonl", "[1, 2]", r"line 1 must be an object with a text and a class: got '\[1, 2\]'"),
        (
            "a.jsonl",
            r'{"text": "a\ud800", "label": "b"}',
            r"line 1: 'text' must be text: got half a character \(\\ud800 to \\udfff\) in",
        ),
        (
            "a.txt",
            "text,label\n",
            r"must be \.csv, \.tsv or \.jsonl \(or \.gz of one\): got a\.txt; rename it",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(name: str, content: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read(tmp_path, content, name)


def test_a_field_longer_than_any_text_is_named(tmp_path: Path) -> None:
    lines = "\n".join(["word " * 50_000] * 5)
    with pytest.raises(DataError, match=r"is no CSV row: field larger than field limit"):
        read(tmp_path, f'text,label\n"{lines}",a\n')


LABELS = st.lists(st.sampled_from("abc"), min_size=1, max_size=40).map(lambda some: [*some, *some])


@given(LABELS, st.floats(0.01, 0.99), st.integers(0, 3))
def test_a_split_has_every_class_on_both_sides(labels: list[str], share: float, seed: int) -> None:
    learnt, kept = split_by_class(labels, share, seed, "to test on")
    assert sorted([*learnt, *kept]) == list(range(len(labels)))
    assert learnt == sorted(learnt) and kept == sorted(kept)
    counts = Counter(labels)
    on_each_side = [Counter(labels[row] for row in rows) for rows in (learnt, kept)]
    for name, count in counts.items():
        assert on_each_side[0][name] >= 1
        assert on_each_side[1][name] == min(max(1, round(share * count)), count - 1)
    assert split_by_class(labels, share, seed, "") == (learnt, kept)


def test_another_seed_draws_others() -> None:
    labels = ["a", "b"] * 30
    draws = [split_by_class(labels, 0.2, seed, "")[1] for seed in (1, 2)]
    assert draws[0] != draws[1] and draws[0] != sorted(labels, key=str)[:12]


def config(folder: Path, rows: str, validation: str | None = None, **settings: object) -> LabelledConfig:
    (folder / "train.csv").write_text(f"text,label\n{rows}")
    if validation is not None:
        (folder / "val.csv").write_text(f"text,label\n{validation}")
        settings["validation"] = "val.csv"
    return replace(LabelledConfig(folder=str(folder)), **settings)  # type: ignore[arg-type]


ROWS = "".join(f"text {n},{'yes' if n % 3 else 'no'}\n" for n in range(30))


def test_a_share_is_kept_by_class_or_a_file_is_read(tmp_path: Path) -> None:
    train, validation, classes = load_labelled(config(tmp_path, ROWS), nothing)
    assert classes == ("no", "yes")
    assert Counter(validation.labels) == {"no": 1, "yes": 2} and len(train) == 27
    assert not set(train.texts) & set(validation.texts)
    read_in = load_labelled(config(tmp_path, ROWS, "other,yes\n"), nothing)
    assert len(read_in[0]) == 30 and read_in[1] == Labelled(["other"], ["yes"])


def test_an_overlap_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    load_labelled(config(tmp_path, ROWS, "text 1,yes\ntext 2,yes\nnew,no\n"), told.append)
    load_labelled(config(tmp_path, ROWS, "text 1,yes\nnew,no\n"), told.append)
    assert told == [
        "2 validation texts are also training texts",
        "1 validation text is also a training text",
    ]


@pytest.mark.parametrize(
    ("rows", "validation", "said"),
    [
        ("a,x\nb,x\n", None, r"two classes or more: got 'x' alone; is data\.labelled\.label \('label'\) the"),
        ("a,x\nb,x\nc,y\n", None, "needs two examples, one to learn from and one to validate on: 'y' has 1"),
        (f"a,x\nb,x\nc,{'y' * 99}\n", None, rf"to validate on: '{'y' * 56}\.\.\. has 1; add"),
        (ROWS, "a,maybe\n", "must occur in the training file: got maybe; correct the names or add examples"),
    ],
)
def test_classes_that_cannot_be_learnt_are_named(
    rows: str, validation: str | None, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        load_labelled(config(tmp_path, rows, validation), nothing)


@pytest.mark.parametrize("part", ["train", "validation"])
def test_a_missing_file_names_its_setting(part: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"no file .*none\.csv: .* data\.labelled\.{part} how their file"):
        load_labelled(replace(config(tmp_path, ROWS), **{part: "none.csv"}), nothing)
