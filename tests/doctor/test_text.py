"""The report as text: of its width, cut where long, coloured without a change."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from conftest import Golden
from doctor import sample
from headwise.doctor import check
from headwise.doctor.check import Verdicted
from headwise.doctor.places import columns, visible
from headwise.doctor.report import Report
from headwise.doctor.text import shown


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "checks", lambda: sample.CARDS)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(tmp_path)
    return sample.report(sample.write_source(tmp_path))


def test_text(report: Report, golden: Golden) -> None:
    golden("doctor_report", report.to_text())
    assert str(report) + "\n" == report.to_text()


def test_text_of_every_check(report: Report, golden: Golden) -> None:
    golden("doctor_report_verbose", report.to_text(verbose=True, width=80))


def test_text_of_a_healthy_model(report: Report, golden: Golden) -> None:
    golden("doctor_report_clean", sample.clean(report.findings[0].file).to_text())


def test_text_keeps_its_width(report: Report) -> None:
    for told in (report, sample.filled(report.findings[0].file, "a long story " * 40 + "x" * 300)):
        for width in (40, 57, 100):
            for verbose in (False, True):
                lines = told.to_text(width=width, verbose=verbose).splitlines()
                assert max(columns(line) for line in lines) <= width
    assert report.to_text(width=3) == report.to_text(width=40)


def test_colour_adds_codes_and_nothing_else(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")  # the caller has decided
    hostile = sample.filled(
        report.findings[0].file, "[bold]x[/bold] :smile: \x1b[31m https://a.b [/nothing] \\["
    )
    for told in (report, hostile):
        coloured = told.to_text(color=True)
        assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == told.to_text()
    assert "\x1b[1;31m" in report.to_text(color=True)
    assert "\x1b" not in report.to_text() + hostile.to_text()


def test_text_loses_nothing_and_hides_nothing(report: Report) -> None:
    @settings(max_examples=25)
    @given(sample.TEXT)
    def law(text: str) -> None:
        printed = "".join(
            sample.filled(report.findings[0].file, text).to_text(width=1000, verbose=True).split()
        )
        assert "".join(visible(text.replace("\r\n", "")).split()) in printed or any(c in text for c in "\t\n")

    law()


def test_long_lists_are_cut_and_say_so(report: Report) -> None:
    many = replace(
        report,
        findings=report.findings[:1] * 25,
        notes=tuple(f"remark {n}" for n in range(30)),
        verdicts={f"HW{n}": Verdicted("could-not-run", f"Broken {n}") for n in range(300, 340)},
    )
    short, whole = many.to_text(), many.to_text(verbose=True)
    assert short.count("Why  ") == 20 and "and 5 more findings: HW101 causal-leak, HW101" in short
    assert "note     and 20 more" in short and "remark 10" not in short
    assert "could not run  and 30 more" in short and "Broken 310" not in short
    assert whole.count("Why  ") == 25 and "remark 29" in whole and "Broken 339" in whole
    assert "more" not in whole
    assert "25 errors found: 0 checks clear, 0 not applicable, 40 could not run" in short


def test_counts(report: Report) -> None:
    assert "1 error, 1 warning, 1 note found: 1 check clear, 1 not applicable, 1 could not run" in str(report)
    ignored = replace(report, findings=())
    assert "nothing found: 1 check clear, 1 not applicable, 1 could not run, 4 set aside" in str(ignored)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        ("a\x1bb", "a\\x1bb"),
        ([6, 16], "[6, 16]"),
        ([], "[]"),
        (["int64 [3, 7]"], "int64 [3, 7]"),
        (({"name": "idx", "shape": [6, 16]}, "mask"), "name=idx shape=[6, 16] and mask"),
        (Path("x"), '"x"'),
    ],
)
def test_assumptions_are_said_in_words(value: object, text: str) -> None:
    assert shown(value) == text
