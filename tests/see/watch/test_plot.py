"""Curves and maps: every finite number at its place, axes with units, many series as a map."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from headwise.see.watch.plot import MOST_LINES, MOST_POINTS, figure

STEPS = [1, 50, 100]


def drawn(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def test_lines_have_axes_units_a_legend_and_their_numbers() -> None:
    text = figure(
        "T", "See <this>.", STEPS, {"a": [1.0, 2.0, 3.0], "b": [3.0, None, 1.0]}, "std", band=(0.8, 1.2)
    )
    root = drawn(text)
    words = [node.text for node in root.iter("text")]
    assert {"step (optimizer updates)", "std", "a", "b", "1", "100"} <= set(words)
    assert "See &lt;this&gt;." in text
    lines = [node.get("d") for node in root.iter("path") if "line" in (node.get("class") or "")]
    assert lines[0].count("L") == 2
    assert lines[1].count("M") == 2  # a gap where there is no number
    assert [node.get("class") for node in root.iter("path")].count("usual") == 1
    assert [cell.text for cell in root.iter("td")][1:4] == ["1", "2", "3"]


def test_higher_is_further_up_also_in_powers_of_ten() -> None:
    for is_log in (False, True):
        root = drawn(figure("T", "", STEPS, {"a": [1e-3, 1e-1, 1e1]}, "x", is_log=is_log))
        (line,) = [n.get("d") for n in root.iter("path") if "line" in (n.get("class") or "")]
        heights = [float(y) for y in re.findall(r" (-?[\d.]+)", line.replace("h0", ""))]
        assert heights[0] > heights[1] > heights[2]
        if is_log:
            assert heights[0] - heights[1] == pytest.approx(heights[1] - heights[2], abs=0.2)


def test_many_series_are_rows_of_a_map() -> None:
    series = {f"head {n}": [n / 10, 0.5, None] for n in range(MOST_LINES + 1)}
    root = drawn(figure("T", "", STEPS, series, "share"))
    words = [node.text for node in root.iter("text")]
    assert "head 8" in words and any("light" in (word or "") for word in words)
    squares = sum(
        (n.get("d") or "").count("h") for n in root.iter("path") if (n.get("class") or "")[0] in "pm"
    )
    assert squares >= 3 * (MOST_LINES + 1)


def test_nothing_to_draw_is_no_figure() -> None:
    assert figure("T", "", STEPS, {"a": [None, float("nan"), None]}, "x") == ""
    assert figure("T", "", [], {}, "x") == ""


def test_a_long_training_is_thinned_out_and_says_so() -> None:
    steps = list(range(1, 2 * MOST_POINTS + 1))
    text = figure("T", "", steps, {"a": [float(s) for s in steps]}, "x")
    assert "Every 2th" not in text and "One measured step in 2 is drawn." in text


def test_one_point_is_seen() -> None:
    assert "h0" in figure("T", "", [1], {"a": [2.0]}, "x")


def test_a_tick_stands_where_its_step_is() -> None:
    root = drawn(figure("T", "", [1, 2, 3, 4], {"a": [4.0, 3.0, 2.0, 1.0]}, "nats"))
    (line,) = [n.get("d") or "" for n in root.iter("path") if "line" in (n.get("class") or "")]
    points = [float(x) for x in re.findall(r"[ML]([\d.]+) ", line)]
    low = max(float(node.get("y") or 0) for node in root.iter("text") if node.text in ("1", "4"))
    ticks = {n.text: float(n.get("x") or 0) for n in root.iter("text") if float(n.get("y") or 0) == low}
    assert ticks == pytest.approx({"1": points[0], "2": points[1], "4": points[3]}, abs=0.1)
