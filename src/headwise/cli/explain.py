"""headwise explain [CHECK]: what a check of the doctor looks for, why it matters, what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from headwise.cli.arguments import CommandParser


def explain(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = CommandParser(
        "explain",
        "[CHECK]",
        "Print the card of one of the doctor's checks: what it finds, how it measures it, why it matters, "
        "what to do. Without a check, list them all by group.",
    )
    parser.add_place("CHECK", "its number or its name: HW101, causal-leak (left out: all)", default="")
    if parser.answers_help(arguments):
        return 0
    given = parser.parse(arguments)
    from headwise.doctor.explain import card, find, listing

    text = card(find(given["check"])) if given["check"] else listing()
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    return 0
