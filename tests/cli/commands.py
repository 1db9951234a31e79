"""One command, called as a user calls it: what it printed when it worked, what it said when it did not."""

from __future__ import annotations

import pytest

from headwise.cli import main

SOURCES = ["<de> May 3, 2011", "", "<zh> $5.20", "   ", "<de> 12%"]


def succeed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(arguments)
    output, error = capsys.readouterr()
    assert code == 0, error
    return output


def fail(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 2
    output, error = capsys.readouterr()
    assert output == "" and error.startswith("headwise: ") and error.count("\n") == 1
    return error


def one_line(error: str) -> str:
    """What was said, having checked that it is what a user should see."""
    assert error.startswith("headwise: ") and error.endswith("\n")
    assert error.count("\n") == 1 and len(error) < 500
    assert "Traceback" not in error and "Parser key" not in error and "usage:" not in error
    return error
