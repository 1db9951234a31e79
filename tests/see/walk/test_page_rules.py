"""The page's own rules reach nothing but the page."""

from __future__ import annotations

from headwise.see.walk.page_rules import RULES


def test_every_rule_keeps_within_the_walk() -> None:
    selectors = [
        part.strip()
        for line in RULES.strip().splitlines()
        for part in line.removeprefix("@media (max-width: 46rem) { ").split("{")[0].split(",")
    ]
    assert len(selectors) > 15
    assert all(part.startswith((".hw-walk", ".hw-report.hw-walk")) for part in selectors)
    assert RULES.count("{") == RULES.count("}") and "url(" not in RULES and RULES.isascii()
