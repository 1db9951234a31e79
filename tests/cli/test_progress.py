"""A bar for who looks at it; the items are the same either way."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from headwise.cli.progress import tracked


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_law_the_items_come_as_they_are_and_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(3):
            taken.append(number)
            yield number

    for screen in (Screen(), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", screen)
        taken.clear()
        stream = tracked(numbers(), 3, "counting")
        assert next(stream) == 0 and taken == [0]
        assert list(stream) == [1, 2]


def test_a_terminal_sees_a_bar_and_nobody_else_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen, file = Screen(), io.StringIO()
    for where in (screen, file):
        monkeypatch.setattr(sys, "stderr", where)
        assert list(tracked("abc", 3, "counting")) == ["a", "b", "c"]
    assert "counting" in screen.getvalue() and "3/3" in screen.getvalue()
    assert file.getvalue() == ""
