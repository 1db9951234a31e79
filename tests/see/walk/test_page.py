"""The page: one file that loads nothing and runs nothing, every text escaped, several in one notebook."""

from __future__ import annotations

import re

from hypothesis import given, settings

from doctor.html_reader import Page
from doctor.sample import TEXT
from headwise.see.walk.walk import trace
from see.walk.test_text import sample
from see.walk.walk_models import Block, Llama, ids, numbers


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    html = trace(Llama(), ids()).to_html()
    assert "<script" not in html and "http" not in html.replace("http-equiv", "") and "style=" not in html
    assert html.count("<details") > 10 and html.count("</details>") == html.count("<details")


@settings(max_examples=40)
@given(TEXT)
def test_texts_are_texts_wherever_they_stand(text: str) -> None:
    marked = f"<b>&{text}"
    html = sample(marked).to_html()
    assert "<b>&" not in html.replace("<b>block", "").replace("<b>attention", "")
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", html)


def test_a_bar_is_drawn_for_each_cost_in_proportion() -> None:
    html = trace(Block(), numbers(2, 10, 16)).to_html()
    wide = [int(w) for w in re.findall(r'<rect width="(\d+)"', html)]
    assert max(wide) == 100 and min(wide) >= 1 and len(wide) > 10


def test_a_notebook_may_hold_several() -> None:
    walk = trace(Block(), numbers(2, 10, 16))
    fragment = walk._repr_html_()
    assert "<html" not in fragment and "<body" not in fragment and " id=" not in fragment
    assert fragment.startswith("<style>")


def test_a_failure_is_shown_where_the_walk_ends() -> None:
    assert (
        "fails here" in sample("x").to_html()
        and "fails here" not in trace(Block(), numbers(2, 10, 16)).to_html()
    )


def test_the_page_is_well_formed() -> None:
    html = re.sub("<col [^>]*>", "", sample("a < b").to_html())  # the reader closes what it opens
    page = Page(html)
    assert "a < b" in page.text and page.tags.count("details") == html.count("<details")
