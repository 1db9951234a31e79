"""report.html: every group of curves, what is unusual with its line and check; self-contained and escaped."""

from __future__ import annotations

from dataclasses import replace

from doctor.html_reader import Page
from headwise.see.watch.judge import Unusual
from headwise.see.watch.page import page
from headwise.see.watch.watch import watch
from see.watch.loops import MODELS
from see.watch.test_sample import SAMPLE

TITLES = (
    "Loss", "Length of the gradient", "Learning rate", "Output of each norm", "Entropy of each head",
    "Std of the queries", "Std of the keys", "Std of the values", "Output projection",
    "Gradient of each layer", "Result of each layer", "How far a step moves each layer", "Logged: accuracy",
)  # fmt: skip


def shown(**changes: object) -> str:
    history = [replace(SAMPLE, step=step, **changes) for step in (1, 50, 100)]
    seen = watch(MODELS["by hand"](), live=False, step=100, history=history)
    seen.findings = [Unusual(50, "error", "NaN in <b>", "HW901", __file__, 8)]
    seen.notes = ["a <note>"]
    return page(seen)


def test_every_group_of_curves_is_there() -> None:
    text = shown()
    assert [title for title in TITLES if title not in text] == []
    assert Page(text).tags.count("svg") == 14  # closed in turn, each drawn once
    assert "Loss" not in shown(loss=None).split("Training</h2>")[1].split("</section>")[0]


def test_what_is_unusual_has_its_line_and_its_check() -> None:
    text = shown()
    assert "NaN in &lt;b&gt;" in text and "a &lt;note&gt;" in text
    assert "headwise doctor FILE --select HW901" in text and "first-nan" in text
    assert "<mark>8" in text
    assert "1 unusual thing in 100 steps, 3 of them measured" in text


def test_it_loads_nothing_and_runs_nothing() -> None:
    text = shown()
    assert "default-src 'none'" in text and "<script" not in text and "http://" not in text
