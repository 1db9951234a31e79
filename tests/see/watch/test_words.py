"""The summary as a person reads it."""

from __future__ import annotations

from dataclasses import replace

from headwise.see.watch.judge import Unusual
from headwise.see.watch.watch import watch
from headwise.see.watch.words import WIDTH, latest
from see.watch.loops import MODELS
from see.watch.test_sample import SAMPLE


def watched():
    seen = watch(MODELS["by hand"](), live=False, step=7, history=[replace(SAMPLE, norms={})])
    seen.findings = [
        Unusual(3, "note", "a head looks at one key", "HW707"),
        Unusual(5, "error", "a number became NaN\x1b[31m " + "x" * 120, "HW901"),
    ]
    seen.notes = ["only the first 256 positions of each row are looked at"]
    return seen


def test_the_summary(golden) -> None:
    text = watched().summary()
    golden("watch_summary", text + "\n")
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert "\x1b" not in text


def test_only_what_was_measured_is_told() -> None:
    told = list(latest(replace(SAMPLE, loss=None, attentions={}, layers={}, norms={})))
    assert told == ["step 7  gradient 0.5  rate 0.001"]
