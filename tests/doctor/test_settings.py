"""Which checks run, what a comment excuses, and what pyproject.toml may say."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwise.doctor.check import Finding, checks
from headwise.doctor.report import Report
from headwise.doctor.settings import (
    Selection,
    check_some,
    check_words,
    chooser,
    known_checks,
    means,
    read_settings,
    suppressed,
    without_suppressed,
    words,
)
from headwise.errors import ConfigError


@dataclass(frozen=True)
class Card:
    id: str = "HW101"
    name: str = "causal-leak"


def test_what_is_read_off_the_files_is_the_registry() -> None:
    known = known_checks()
    assert known == {check.id: check.name for check in checks()}
    assert known["HW101"] == "causal-leak"


@pytest.mark.parametrize("word", ["HW101", "hw101", "HW1", "HW", "causal-leak", "Causal-Leak"])
def test_a_check_goes_by_its_id_the_beginning_of_it_or_its_name(word: str) -> None:
    assert means(word, Card())
    assert chooser(word)(Card()) and not chooser((), [word])(Card())


@pytest.mark.parametrize("word", ["HW2", "HW1011", "causal", "leak", "101", ""])
def test_nothing_else_means_it(word: str) -> None:
    assert not means(word, Card())


def test_ignore_wins_over_select() -> None:
    selection = Selection(("HW1",), ("causal-leak",))
    assert not selection(Card()) and selection(Card("HW105", "mask-inverted"))
    assert not selection(Card("HW209", "batch-mixed")) and Selection()(Card())


@pytest.mark.parametrize(
    ("word", "near"), [("HW1O1", "HW101"), ("casual-leak", "causal-leak"), ("xyz", "headwise explain lists")]
)
def test_a_word_that_means_no_check_is_refused_with_what_is_near(word: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"--select: no check is called '{word}'; .*{near}"):
        check_words(["HW1", word], "--select")
    with pytest.raises(ConfigError, match=r"^ignore: no check"):
        chooser("HW1, causal-leak", ["HW2", word])


def test_a_selection_of_nothing_is_refused() -> None:
    check_some(["HW1"], "--select", "HW1")
    with pytest.raises(ConfigError, match="--select must name a check: got ' , '"):
        check_some(words(" , "), "--select", " , ")


def test_words_come_from_text_or_a_list() -> None:
    assert words(" HW1, ,causal-leak ") == words(["HW1", "causal-leak"]) == ("HW1", "causal-leak")


SOURCE = """\
import os
x = 1  # headwise: ignore[HW101]
y = 2  # headwise: ignore[ mask-inverted , causal-leak ]
z = 3  # headwise: ignore
text = "# headwise: ignore"
call(  # headwise: ignore[HW1]
    1,
    2,
)
def f():  # headwise: ignore
    a = 1
    if a:  # headwise: ignore[HW101]
        b = (
            2)
    return 1  # noqa # headwise: ignore[HW209]
w = 4  # HEADWISE:IGNORE
"""


def finding(file: Path | str, line: int, id: str = "HW101", name: str = "causal-leak") -> Finding:
    return Finding(id, name, "error", "", str(file), line, (), "saw", "why", "fix")


@pytest.mark.parametrize(
    ("line", "excused"),
    [
        *((1, False), (2, True), (3, True), (4, True), (5, False), (6, True), (7, True), (8, True)),
        *(
            (10, True),
            (11, False),
            (12, True),
            (13, False),
            (14, False),
            (15, False),
            (16, True),
            (99, False),
        ),
    ],
)
def test_a_comment_excuses_its_line_and_the_statement_that_begins_there(
    line: int, excused: bool, tmp_path: Path
) -> None:
    file = tmp_path / "model.py"
    file.write_text(SOURCE)
    assert suppressed(finding(file, line)) is excused


def test_a_comment_excuses_only_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(SOURCE)
    other = {"id": "HW209", "name": "batch-mixed"}
    assert [suppressed(finding(file, line, **other)) for line in (2, 3, 4, 7, 15)] == [
        *(False, False, True, False, True)
    ]


def test_a_file_that_changed_is_read_again_and_a_broken_one_is_no_crash(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("x = 1\n")
    assert not suppressed(finding(file, 1))
    file.write_text("x = 1  # headwise: ignore\n")
    assert suppressed(finding(file, 1))
    file.write_text("x = 1  # headwise: ignore\ny = (\n")
    assert suppressed(finding(file, 1)) and not suppressed(finding(file, 2))
    assert not suppressed(finding("", 0)) and not suppressed(finding(tmp_path / "gone.py", 3))


def test_excused_findings_leave_the_report_and_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(SOURCE)
    report = Report("1", "t", {}, (finding(file, 1), finding(file, 2), finding(file, 4)), {}, ("a",))
    kept = without_suppressed(report)
    assert [f.line for f in kept.findings] == [1]
    assert kept.notes == ("a", "2 findings are excused by comments '# headwise: ignore'")
    assert without_suppressed(kept) is kept


def test_the_nearest_pyproject_with_settings_speaks(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    target = inner / "model.py"
    target.touch()
    (tmp_path / "pyproject.toml").write_text(
        '[tool.headwise]\nselect = ["HW1"]\nignore = "HW209, causal-leak"\nfail-on = "note"\n'
        'kind = "decoder"\npad-id = 0\nformat = "json"\ndevice = "cpu"\n'
    )
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    found = read_settings(str(target))
    assert found.path == tmp_path / "pyproject.toml"
    assert found.values == {
        "select": ("HW1",),
        "ignore": ("HW209", "causal-leak"),
        "fail-on": "note",
        "kind": "decoder",
        "pad-id": 0,
        "format": "json",
        "device": "cpu",
    }
    assert read_settings(f"{target}:build") == read_settings(str(inner)) == found
    (inner / "pyproject.toml").write_text("[tool.headwise]\n")
    assert read_settings(str(target)).values == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('fail_on = "error"', "unknown key fail_on; did you mean fail-on"),
        ("colour = 1", "unknown key colour; there are select, ignore"),
        ('kind = "gpt"', r"kind must be one of decoder, encoder, encoder-decoder: got 'gpt'"),
        ("pad-id = true", "pad-id must be a whole number: got True"),
        ("device = 1", "device must be text"),
        ("select = 1", "select must be a list"),
        ("select = []", r"select must name a check: got \[\]"),
        ('ignore = ["HW1O1"]', "ignore: no check is called 'HW1O1'; did you mean HW101"),
        ("select = [", "not valid TOML"),
    ],
)
def test_a_mistake_in_pyproject_names_the_file(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.headwise]\n{text}\n")
    with pytest.raises(ConfigError, match=said) as error:
        read_settings(str(tmp_path / "model.py"))
    assert str(tmp_path / "pyproject.toml") in str(error.value)


def test_settings_load_no_torch() -> None:
    code = (
        "import sys, json\nfrom headwise.doctor.settings import known_checks\nknown_checks()\n"
        "print(json.dumps([m for m in ('torch', 'numpy') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
