"""The drawings: masked is not zero, no number breaks a line, nothing is left out in silence."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from doctor import sample
from doctor.html_reader import Page
from headwise.doctor.check import Picture
from headwise.doctor.picture import svg


def test_masked_cells_are_hatched_and_not_zero() -> None:
    html = svg(sample.MATRIX)
    cells = {name: d.count("z") for name, d in re.findall(r'<path class="(\w+)" d="([^"]*)"', html)}
    assert cells["masked"] == 4 and cells["p0"] == 1  # 0.0 is a cell of its own
    assert cells["p8"] == 2 and cells["n2"] == 1 and cells["p4"] == 3 and cells["p2"] == 1
    assert "Hatched: masked." in html and "Crossed: infinite." in html and "-0.25 to 1." in html
    assert 'class="hatch"' in html
    whole = svg(replace(sample.MATRIX, values=((0.0, 1.0),)))
    assert "hatch" not in whole.lower() and "masked" not in whole and "infinite" not in whole


def test_lines_break_where_there_is_no_number() -> None:
    lines = re.findall(r'<path class="line c\d" d="([^"]*)"', svg(sample.CURVE))
    grows, gap = lines[:2]
    assert grows.count("M") == 1 and grows.count("L") == 3
    assert gap.count("M") == 2 and gap.count("L") == 1
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", grows)]
    assert heights == sorted(heights, reverse=True)  # up the page is more
    assert "A gap is no finite number." in svg(sample.CURVE)
    assert ">activations</text>" in svg(sample.CURVE) and ">gradients</text>" in svg(sample.CURVE)


def test_large_pictures_are_cut_and_say_so() -> None:
    large = svg(Picture("matrix", "t", ((0.5,) * 200,) * 100))
    assert "The first 64 of 100 rows and 64 of 200 columns." in large
    assert large.count("z") == 64 * 64 + 1  # and the frame
    many = svg(Picture("curve", "t", tuple((float(n), 1.0) for n in range(12))))
    assert "The first 8 of 12 lines." in many
    long = svg(Picture("curve", "t", (tuple(float(n) for n in range(5000)),)))
    assert "One point in 13 is drawn." in long and len(long) < 20_000


@given(
    st.sampled_from(["matrix", "curve"]),
    st.lists(st.lists(st.floats(), max_size=5), max_size=4),
    st.lists(st.text(max_size=5), max_size=5),
)
def test_any_numbers_can_be_drawn(kind: str, rows: list[list[float]], labels: list[str]) -> None:
    picture = Picture(
        "matrix" if kind == "matrix" else "curve", "t", tuple(map(tuple, rows)), labels=tuple(labels)
    )
    html = svg(picture)
    assert (html == "") == (not any(rows))
    page = Page(html)
    for tag, name, value in page.attributes:
        if (tag, name) == ("path", "d"):
            numbers = [float(n) for n in re.findall(r"-?[\w.]+", re.sub("[MLHVhvlz]", " ", value or ""))]
            assert all(math.isfinite(n) and -30 <= n <= 600 for n in numbers)


def test_a_small_matrix_has_room_for_the_names_of_its_axes() -> None:
    html = svg(
        Picture("matrix", "t", ((1.0,),), x_label="a long name of an axis", y_label="another long name")
    )
    width, height = (int(n) for n in re.findall(r'viewBox="0 0 (\d+) (\d+)"', html)[0])
    assert width >= 22 * 7 and height >= 17 * 7
    (x,) = re.findall(r'<text x="([\d.]+)" [^>]*>a long', html)
    assert 22 * 3.5 <= float(x) <= width - 22 * 3.5


def test_the_numbers_can_be_read_without_the_drawing() -> None:
    page = Page(svg(sample.MATRIX))
    assert "masked" in page.text and "0.25" in page.text and "details" in page.tags
    label = next(v for t, n, v in page.attributes if (t, n) == ("svg", "aria-label"))
    assert label == "Weights of head 1. Row 0 should see only itself."
