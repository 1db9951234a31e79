"""Names of places, the lines that stand there, and text with nothing hidden in it."""

from __future__ import annotations

import linecache
import os
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.doctor.places import (
    beneath,
    cell_of,
    columns,
    excerpt,
    fold,
    place,
    source,
    visible,
    visible_lines,
)

TEXT = st.text(st.characters(), max_size=80)  # every code point, lone surrogates too


@given(TEXT)
def test_visible_text_can_be_written_anywhere(text: str) -> None:
    said = visible(text)
    said.encode("utf-8")
    assert not [c for c in said if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not [c for c in said if "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"]


@given(st.text(st.characters(exclude_categories=["C", "Z"])))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_what_is_hidden_is_named() -> None:
    assert visible("a\x1b[31m\tb\n\u202e\udc80\x85") == "a\\x1b[31m\\tb\\n\\u202e\\udc80\\x85"
    assert visible_lines("one\r\n\n  \n\ttwo\x07") == ["one", "    two\\x07"]


@given(TEXT.map(visible), st.integers(4, 40))
def test_folding_keeps_every_letter_and_the_width(text: str, width: int) -> None:
    lines = fold(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(columns(line) <= width for line in lines)


def test_folding_breaks_at_spaces_and_counts_wide_letters_twice() -> None:
    assert fold("one two  three", 9) == ["one two", "three"]
    assert fold("  a  b", 9) == ["  a  b"]
    assert fold("\u4e2d\u6587\u4e2d\u6587", 4) == ["\u4e2d\u6587", "\u4e2d\u6587"]
    assert columns("e\u0301") == 1
    assert fold("", 9) == [""]


def test_a_place_is_shown_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place(str(tmp_path / "a" / "b.py"), 3) == f"{os.path.join('a', 'b.py')}:3"
    outside = str(tmp_path.parent / "c.py")
    assert place(outside, 3) == f"{outside}:3"
    assert place(str(tmp_path) + "x.py", 3) == f"{tmp_path}x.py:3"  # a longer name is not beneath
    assert place("..odd.py", 1) == "..odd.py:1"
    assert place("<string>", 1) == "<string>:1"
    assert beneath(outside) is None


def test_a_place_survives_a_current_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert place("/elsewhere/a.py", 3) == "/elsewhere/a.py:3"
    monkeypatch.chdir(tmp_path)  # where pytest can go back from


def test_code_and_its_surroundings(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text("".join(f"\tline {n}  \n" for n in range(1, 10)), encoding="utf-8")
    file = str(path)
    assert source(file, 2) == "line 2"
    assert [n for n, _ in excerpt(file, 5)] == [2, 3, 4, 5, 6, 7, 8]
    assert [n for n, _ in excerpt(file, 1)] == [1, 2, 3, 4]
    assert excerpt(file, 9)[-1] == (9, "    line 9")
    assert excerpt(file, 10) == [] == excerpt(file, 0)
    assert source(file, 10) == ""
    assert source(str(tmp_path / "none.py"), 1) == "" and excerpt("<string>", 1) == []


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> str:
    """IPython as far as a traceback asks it: cell 3 was compiled under a made-up path."""
    file = "/nowhere/ipykernel_123/456.py"

    def format_code_name(name: str) -> tuple[str, str] | None:
        return ("Cell", "In[3]") if name == file else None

    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=format_code_name))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    lines = ["import torch\n", "weights = scores.softmax(1)\n"]
    monkeypatch.setitem(linecache.cache, file, (1, None, lines, file))
    return file


def test_a_cell_is_named_as_the_notebook_names_it(notebook: str) -> None:
    assert place(notebook, 2) == "Cell In[3], line 2"
    assert source(notebook, 2) == "weights = scores.softmax(1)"
    assert excerpt(notebook, 2)[-1] == (2, "weights = scores.softmax(1)")
    assert place("/nowhere/model.py", 2) == "/nowhere/model.py:2"


def test_cells_of_other_times_and_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert place("<ipython-input-7-0a1b2c>", 5) == "Cell In[7], line 5"
    assert cell_of("/nowhere/ipykernel_123/456.py") is None  # only IPython knows, and it is not here
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert place("/nowhere/ipykernel_123/456.py", 5) == "/nowhere/ipykernel_123/456.py:5"
