"""The report as one self-contained HTML page: no script, no network, light and dark, made for reading."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from headwise.doctor import check as cards
from headwise.doctor.check import Finding
from headwise.doctor.page_style import CSS
from headwise.doctor.picture import svg
from headwise.doctor.places import excerpt, place, visible, visible_lines
from headwise.doctor.text import counted, shown, summary
from headwise.pages import document

if TYPE_CHECKING:
    from headwise.doctor.report import Report


def to_html(report: Report) -> str:
    """The whole page. Its policy forbids scripts and every load, and allows this one style sheet."""
    return document(f"headwise doctor: {visible(report.target)}", CSS, _main(report))


def fragment(report: Report) -> str:
    """The same report without a page about it, for a notebook's output; it brings its own style sheet."""
    return f"<style>{CSS}</style>\n{_main(report)}"


def _main(report: Report) -> str:
    # a notebook shows several reports on one page: what is linked to needs a name of the report's own
    mark = "hw-" + hashlib.sha256(str(report).encode()).hexdigest()[:8]
    parts = [
        '<main class="hw-report">\n<header>\n<h1>headwise doctor</h1>\n',
        f'<p class="target">{_text(report.target)}</p>\n',
        f'<p class="summary {report.worst or "clear"}">{_text(summary(report))}</p>\n',
        _assumed(report),
        "".join(f'<p class="remark">Note: {_text(note)}</p>\n' for note in report.notes),
        "</header>\n",
    ]
    if len(report.findings) > 1:
        parts.append(_contents(report.findings, mark))
    parts += [
        _finding(finding, f"{mark}-{number}") for number, finding in enumerate(report.findings, start=1)
    ]
    parts += [_checks(report), "</main>\n"]
    return "".join(parts)


def _assumed(report: Report) -> str:
    if not report.assumed:
        return ""
    told = "".join(
        f"<div><dt>{_text(key)}</dt><dd>{_text(shown(value))}</dd></div>"
        for key, value in report.assumed.items()
    )
    return f'<h2>Assumed</h2>\n<dl class="assumed">{told}</dl>\n'


def _contents(findings: Sequence[Finding], mark: str) -> str:
    items = "".join(
        f'<li><a href="#{mark}-{number}">{_text(f.id)} {_text(f.name)}</a> '
        f'<span class="badge {f.severity}">{f.severity}</span></li>'
        for number, f in enumerate(findings, start=1)
    )
    return f'<nav aria-label="Findings"><ol>{items}</ol></nav>\n'


def _finding(finding: Finding, mark: str) -> str:
    parts = [
        f'<section class="finding {finding.severity}" id="{mark}">\n',
        f'<h2><span class="badge {finding.severity}">{finding.severity}</span> ',
        f"<code>{_text(finding.id)} {_text(finding.name)}</code> {_text(finding.title)}</h2>\n",
    ]
    if finding.file:
        parts.append(_source(finding.file, finding.line, place(finding.file, finding.line)))
    if finding.module:
        parts.append(f'<p class="module">In <code>{_text(finding.module)}</code></p>\n')
    facts = "".join(
        f"<dt>{label}</dt><dd>{'<br>'.join(escape(line) for line in visible_lines(said))}</dd>"
        for label, said in (("Saw", finding.evidence), ("Why", finding.why), ("Fix", finding.fix))
        if said
    )
    parts.append(f'<dl class="facts">{facts}</dl>\n')
    if finding.picture is not None:
        parts.append(svg(finding.picture) + "\n")
    for other in finding.related:
        where = f"{place(other.file, other.line)} ({visible(other.role)})"
        parts.append(_source(other.file, other.line, f"Also {where}", around=1))
    if finding.explains:
        told = ", ".join(f"<code>{_text(name)}</code>" for name in finding.explains)
        parts.append(f'<p class="explains">Explains {told}</p>\n')
    parts.append("</section>\n")
    return "".join(parts)


def _source(file: str, line: int, where: str, around: int = 3) -> str:
    lines = excerpt(file, line, around)
    if not lines:
        return f'<p class="place">{_text(where)}</p>\n'
    width = len(str(lines[-1][0]))
    told: list[str] = []
    for number, code in lines:
        text = f"{number:>{width}}  {escape(code)}"
        told.append(f"<mark>{text}</mark>" if number == line else f"<span>{text}</span>")
    return (
        f'<figure class="source"><figcaption class="place">{_text(where)}</figcaption>'
        f'<pre tabindex="0" aria-label="source, line {line} marked">{"".join(told)}</pre></figure>\n'
    )


def _checks(report: Report) -> str:
    if not report.verdicts:
        return ""
    known = {card.id: card for card in cards.checks()}
    rows: list[str] = []
    for id, held in sorted(report.verdicts.items()):
        card = known.get(id)
        name, title = (card.name, card.title) if card else ("", "")
        rows.append(
            f'<tr><th scope="row"><code>{_text(id)}</code> {_text(name)}<small>{_text(title)}</small></th>'
            f'<td class="verdict {held.verdict}">{held.verdict.replace("-", " ")}</td>'
            f"<td>{_text(held.tried)}</td></tr>\n"
        )
    return (
        f"<section>\n<h2>{counted(len(rows), 'check')}</h2>\n"
        '<div class="wide" tabindex="0" role="region" aria-label="Checks">\n'
        '<table class="checks"><thead><tr><th scope="col">Check</th><th scope="col">Verdict</th>'
        f'<th scope="col">What was tried</th></tr></thead>\n<tbody>\n{"".join(rows)}</tbody></table>\n'
        "</div>\n</section>\n"
    )


def _text(text: str) -> str:
    return escape(visible(text))
