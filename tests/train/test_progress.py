"""A bar on a terminal, lines elsewhere, and text exactly as it is."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from headwise.train.loop import train
from headwise.train.progress import View
from tiny_run import tiny_kind


def view(is_terminal: bool) -> tuple[View, io.StringIO]:
    file = io.StringIO()
    return View(Console(file=file, force_terminal=is_terminal, width=120, color_system=None)), file


def test_elsewhere_each_logged_step_is_a_line() -> None:
    shown, file = view(is_terminal=False)
    with shown.bar(100, 10):
        shown.advance(20, 1.25, 1e-3, 1234.5)
        assert file.getvalue() == ""
        shown.logged(20, 1.25, 1e-3, 1234.5)
    assert file.getvalue().startswith("step 20/100  loss 1.250  lr 1.00e-03  1,234 tok/s  0:00:0")
    assert file.getvalue().endswith(" left\n")
    assert "\x1b" not in file.getvalue()


def test_on_a_terminal_the_bar_shows_the_numbers_and_no_line_is_printed() -> None:
    shown, file = view(is_terminal=True)
    with shown.bar(100, 10):
        shown.advance(20, 1.25, 1e-3, 1234.5)
        shown.logged(20, 1.25, 1e-3, 1234.5)
    text = file.getvalue()
    for part in ("training", "20/100", "loss 1.250", "lr 1.00e-03", "1,234 tok/s"):
        assert part in text
    assert "step 20" not in text


def test_after_an_error_there_is_no_bar_left() -> None:
    shown, file = view(is_terminal=True)
    with pytest.raises(KeyError), shown.bar(100, 0):
        raise KeyError
    before = file.getvalue()
    shown.advance(20, 1.25, 1e-3, 1234.5)
    assert file.getvalue() == before


@pytest.mark.parametrize(
    "text", ["[bold]x[/bold]", "at 5:watch: 30", "a\\", "[/]", "<de> 1 [2] :cat:", "日本 " * 100, ""]
)
@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_is_shown_as_it_is(text: str, is_terminal: bool) -> None:
    shown, file = view(is_terminal)
    shown.line(text)
    shown.warn(text)
    assert file.getvalue() == f"{text}\nwarning: {text}\n"


def test_it_speaks_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    View().line("hello")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "hello\n")


@pytest.mark.parametrize(
    ("kind", "unit"), [("language", "tok"), ("masked", "tok"), ("labelled", "texts"), ("images", "pictures")]
)
def test_the_speed_is_told_in_what_the_task_counts(kind: str, unit: str, tmp_path: Path) -> None:
    shown, file = view(is_terminal=False)
    train(tiny_kind(kind, tmp_path), shown)
    speeds = re.findall(r"step \d+/\d+ .* [\d,]+ (\w+)/s", file.getvalue())
    assert speeds and set(speeds) == {unit}
