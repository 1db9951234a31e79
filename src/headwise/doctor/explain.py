"""The card of a check as `headwise explain` prints it, and finding a check by whatever the user typed."""

from __future__ import annotations

import difflib
import re

from headwise.doctor import check as cards
from headwise.doctor.check import GROUPS, Check
from headwise.doctor.text import counted, fold, labelled, visible_lines
from headwise.errors import ConfigError


def card(check: Check, width: int = 100) -> str:
    """All that is known of a check: what it finds, how it measures it, why it matters, what to do."""
    lines = fold(f"{check.id} {check.name}  {check.title}  [{check.severity}]", width)
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", check.doc) if part.strip()]
    told = {
        "How": paragraphs,
        "Why": visible_lines(check.why),
        "Fix": visible_lines(check.fix),
        "Group": [GROUPS.get(check.group, check.group)],
        "Needs": [", ".join(sorted(check.needs))] if check.needs else [],
        "Explains": [", ".join(sorted(check.explains))] if check.explains else [],
    }
    for label, said in told.items():
        lines += ["".join(text for text, _ in line) for line in labelled(label, said, width)]
    return "\n".join(lines) + "\n"


def listing(width: int = 100) -> str:
    """Every check, one a line, under its group."""
    every = cards.checks()
    longest = max((len(each.name) for each in every), default=0)
    lines = [counted(len(every), "check")]
    group = ""
    for each in every:
        if each.group != group:
            group = each.group
            lines += ["", f"{group}  {GROUPS.get(group, '')}"]
        start = f"  {each.id} {each.name:<{longest}}  "
        folded = fold(each.title, max(width - len(start), 20))
        lines += [(start if number == 0 else " " * len(start)) + part for number, part in enumerate(folded)]
    return "\n".join(lines) + "\n"


def find(word: str) -> Check:
    """The check with this number or name: HW101, hw101, 101, causal-leak and causal_leak are one.

    Errors: ConfigError naming those that come close.
    """
    every = cards.checks()
    sought = word.strip().lower().replace("_", "-").replace(" ", "-")
    for each in every:
        if sought in (each.id.lower(), each.id[2:], each.name):
            return each
    names = [each.name for each in every]
    close = difflib.get_close_matches(sought, names, n=3, cutoff=0.5)
    parts = set(sought.split("-"))
    close += [name for name in names if parts & set(name.split("-")) and name not in close][: 3 - len(close)]
    if not close and re.fullmatch(r"(hw)?\d+", sought):
        number = sought.removeprefix("hw").ljust(3, "0")[:3]
        group = [each.id for each in every if each.id[2] == number[0]]
        close = sorted(sorted(group, key=lambda id: abs(int(id[2:]) - int(number)))[:3])
    way_out = f"did you mean {' or '.join(close)}?" if close else "`headwise explain` alone lists all of them"
    raise ConfigError(f"a check is named by its number or its name: got {word!r}; {way_out}")
