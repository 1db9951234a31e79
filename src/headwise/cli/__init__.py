"""The command line: `main` finds the command, each command is a file here; torch comes late."""

from __future__ import annotations

from headwise.cli.dispatch import main

__all__ = ["main"]
