"""The style sheet: within the report, whole in light and dark."""

from __future__ import annotations

import re
from dataclasses import replace

from doctor import sample
from headwise.doctor.page_style import CSS
from headwise.doctor.picture import svg


def test_every_style_rule_stays_within_the_report() -> None:
    rules = re.findall(r"(?:^|\})\s*([^{}@]+)\{", re.sub(r"@media[^{]*\{", "}", CSS))
    assert len(rules) > 50
    for rule in rules:
        for selector in rule.split(","):
            assert selector.strip().startswith((".hw-report", ".hw-page")), selector


def test_every_class_of_a_drawing_has_a_colour_in_light_and_dark() -> None:
    light, dark = CSS.split("prefers-color-scheme: dark")
    names = set(re.findall(r"(--[\w]+):", light))
    assert names == set(re.findall(r"(--[\w]+):", dark)) and names >= set(re.findall(r"var\((--\w+)\)", CSS))
    drawn = [sample.MATRIX, replace(sample.CURVE, values=((0.0, 1.0),) * 8)]
    for name in {c for p in drawn for c in re.findall(r'<path class="([^"]+)"', svg(p))}:
        for one in name.split():
            assert re.search(rf"\.{one} \{{", light), one
