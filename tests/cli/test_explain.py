"""`headwise explain`: the card of a check, or the list of all."""

from __future__ import annotations

import pytest

from cli.commands import fail, succeed
from headwise.doctor.check import checks


@pytest.mark.parametrize("word", ["HW101", "hw101", "causal-leak"])
def test_a_card_is_printed_by_id_and_by_name(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = succeed(capsys, "explain", word)
    assert output.startswith("HW101 causal-leak") and output.endswith("\n")
    assert "Fix" in output and output == succeed(capsys, "explain", "HW101")


def test_alone_it_lists_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    output = succeed(capsys, "explain")
    for check in checks():
        assert f"{check.id} {check.name}" in output
    assert "HW1  masks" in output


def test_a_check_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "causal-leak" in fail(capsys, "explain", "casual-leak")
