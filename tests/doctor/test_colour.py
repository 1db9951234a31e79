"""Colours are codes about the same text, whatever the environment says."""

from __future__ import annotations

import re

import pytest

from headwise.doctor.colour import colored


def test_the_text_is_the_same_without_the_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    lines = [[("one  ", "bold"), ("[red]two", ""), ("   ", "cyan")], [], [("x" * 300, "dim")]]
    told = colored(lines)
    assert re.sub("\x1b\\[[0-9;]*m", "", told) == f"one  [red]two\n\n{'x' * 300}\n" and "\x1b[1m" in told
