"""The HTML page: whole, still, self-contained, and deaf to what a model's author wrote."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from conftest import Golden
from doctor import sample
from doctor.html_reader import Page
from headwise.doctor import check
from headwise.doctor.page_style import CSS
from headwise.doctor.places import visible
from headwise.doctor.report import Report
from headwise.errors import StorageError

HOSTILE = (
    "</code></pre></style><script>alert(1)</script><img src=x onerror=alert(1)> \"' &amp; &#0; \x00\x1b[0m"
)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "checks", lambda: sample.CARDS)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(tmp_path)
    return sample.report(sample.write_source(tmp_path))


def test_the_page_loads_and_runs_nothing(report: Report) -> None:
    page = Page(report.to_html())
    assert not {"script", "link", "img", "iframe", "object", "form", "base", "use", "image"} & set(page.tags)
    for _, name, value in page.attributes:
        assert not name.startswith("on") and name not in ("src", "style", "srcset", "xlink:href")
        assert name != "href" or (value or "").startswith("#")
    assert "url(" not in CSS and "@import" not in CSS and "</" not in CSS


def test_the_policy_forbids_scripts_and_allows_this_style(report: Report) -> None:
    html = report.to_html()
    policy = next(
        v for t, n, v in Page(html).attributes if t == "meta" and n == "content" and "src" in (v or "")
    )
    style = html[html.index("<style>") + 7 : html.index("</style>")]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'")
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_what_the_user_wrote_changes_no_tag(report: Report) -> None:
    file = report.findings[0].file
    plain = Page(sample.filled(file, "x").to_html())

    @settings(max_examples=25)
    @given(sample.TEXT.filter(lambda text: text.strip() and "\n" not in text))
    def law(text: str) -> None:
        page = Page(sample.filled(file, text).to_html())
        assert page.tags == plain.tags
        assert visible(text) in page.text

    law()
    hostile = Page(sample.filled(file, HOSTILE).to_html())
    assert hostile.tags == plain.tags
    assert visible(HOSTILE) in hostile.text


def test_source_is_shown_about_the_line_and_the_line_is_marked(report: Report) -> None:
    html = report.to_html()
    marked = re.findall(r"<mark>(.*?)</mark>", html)
    assert marked[0] == "13              weights = scores.softmax(-1)"
    assert marked[1] == " 9          keep = torch.ones(x.size(1), x.size(1)).tril()"
    page = Page(html)
    assert '10          if self.masked and "<b>&amp;</b>" != "]]>":' in page.text
    assert "\x0014" not in page.text and page.text.count("class Attention") == 0  # three lines, no more


def test_everything_in_the_report_is_on_the_page(report: Report) -> None:
    text = Page(report.to_html()).text
    for finding in report.findings:
        told = [finding.id, finding.name, finding.title, finding.why, finding.fix, *finding.explains]
        told += [*finding.evidence.split("\n"), finding.module, *(r.role for r in finding.related)]
        assert [word for word in told if word not in text] == []
    for id, held in report.verdicts.items():
        assert id in text and held.tried in text and held.verdict.replace("-", " ") in text
    assert "unwrapped torch.compile" in text and "batch-first" in text


def test_page(report: Report, golden: Golden) -> None:
    golden("doctor_page", report.to_html())


def test_the_page_is_written_whole_or_not_at_all(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "out" / "report.html"
    html = report.to_html(path)
    assert path.read_text(encoding="utf-8") == html == report.to_html()
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(StorageError, match="cannot write"):
        report.to_html(tmp_path / "my_model.py" / "report.html")


def test_a_notebook_shows_the_same_without_a_page_about_it(report: Report) -> None:
    shown = report._repr_html_()
    page = Page(shown)
    assert not {"html", "head", "body", "meta", "title"} & set(page.tags)
    assert shown.split("</style>", 1)[1].strip() in report.to_html()
    bundle = report._repr_mimebundle_(include=None, exclude=None)
    assert bundle == {"text/plain": str(report), "text/html": shown}


def test_two_reports_in_one_notebook_link_each_to_its_own(report: Report) -> None:
    def ids(told: Report) -> set[str | None]:
        attributes = Page(told._repr_html_()).attributes
        here = {value for _, name, value in attributes if name == "id"}
        assert {"#" + str(value) for value in here} == {v for _, name, v in attributes if name == "href"}
        return here

    assert len(ids(report)) == 3
    assert not ids(report) & ids(replace(report, target="other.py"))
