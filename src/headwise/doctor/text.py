"""The report as text of a fixed width, and the same text coloured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from headwise.doctor import check as cards
from headwise.doctor.check import SEVERITIES, Finding, Verdict
from headwise.doctor.colour import colored
from headwise.doctor.places import columns, fold, place, source, visible, visible_lines

if TYPE_CHECKING:
    from headwise.doctor.report import Report

Line = list[tuple[str, str]]  # spans of text, each with its style

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan", "clear": "bold green"}
_FINDINGS, _NAMES, _OTHERS, _LINES = 20, 12, 10, 12  # how many of each before "and N more"
_NARROWEST = 40
_FEW = 4  # checks, up to which the reason is told why one was not made
_INDENT = 2


def to_text(report: Report, color: bool, width: int, verbose: bool) -> str:
    """The report's text form. Law: without its colour codes, the coloured text is the plain one."""
    lines = list(_layout(report, max(width, _NARROWEST), verbose))
    if color:
        return colored(lines)
    return "".join("".join(span for span, _ in line).rstrip() + "\n" for line in lines)


def labelled(label: str, lines: Sequence[str], width: int) -> Iterator[Line]:
    """`  Why  Training loss ...`, its further lines hanging under the first word; nothing for no text."""
    start = f"{'':{_INDENT}}{label:<3}  "
    for number, text in enumerate(
        part for line in lines for part in fold(visible(line), width - columns(start))
    ):
        yield [(start if number == 0 else " " * columns(start), "bold" if number == 0 else ""), (text, "")]


def counted(number: int, word: str) -> str:
    """`1 error`, `2 errors`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def shown(value: object) -> str:
    """An assumption's value in words: `idx`, `[6, 16]`, `name=idx shape=[6, 16]`, one thing and another."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return " ".join(f"{visible(str(key))}={shown(held)}" for key, held in pairs.items())
    if isinstance(value, list | tuple):
        members = cast("list[object]", value)
        if any(isinstance(each, str | Mapping | list | tuple) for each in members):
            return " and ".join(shown(each) for each in members)
    return visible(json.dumps(value, default=str))


def some(items: Sequence[str], most: int) -> list[str]:
    """The first items, and how many more there are."""
    return [*items] if len(items) <= most else [*items[:most], f"and {len(items) - most} more"]


def summary(report: Report) -> str:
    """What was found, and how much was tried, in one line."""
    words: tuple[Verdict, ...] = ("found", "clear", "not-applicable", "could-not-run")
    many = {word: len(report.with_verdict(word)) for word in words}
    tried = f"{counted(many['clear'], 'check')} clear, {many['not-applicable']} not applicable"
    if many["could-not-run"]:
        tried += f", {many['could-not-run']} could not run"
    if not report.findings:
        beneath = f", {many['found']} set aside" if many["found"] else ""
        return f"nothing found: {tried}{beneath}"
    many_of = {severity: sum(f.severity == severity for f in report.findings) for severity in SEVERITIES}
    kinds = [counted(number, severity) for severity, number in many_of.items() if number]
    return f"{', '.join(kinds)} found: {tried}"


def names() -> dict[str, str]:
    """The name of each check, by its id."""
    return {card.id: card.name for card in cards.checks()}


def _layout(report: Report, width: int, verbose: bool) -> Iterator[Line]:
    yield from _head(report, width, verbose)
    yield []
    most = len(report.findings) if verbose else _FINDINGS
    for finding in report.findings[:most]:
        yield from _finding(finding, width, verbose)
        yield []
    if rest := report.findings[most:]:
        told = ", ".join(some([f"{f.id} {f.name}" for f in rest], _NAMES))
        yield from _hanging("", f"and {counted(len(rest), 'more finding')}: {told}", width)
        yield []
    worst = report.worst
    style = _STYLES[worst or "clear"]
    yield from ([(line, style)] for line in fold(summary(report), width))
    words: list[tuple[Verdict, str]] = [("could-not-run", "could not run")]
    if len(report.verdicts) <= _FEW and not verbose:  # somebody asked for these, and wants to know
        words.append(("not-applicable", "not applicable"))
    for word, said in words:
        name = names()
        told = [
            f"{id} {name.get(id, '')}".rstrip() + f": {held.tried}"
            for id, held in report.with_verdict(word).items()
        ]
        for line in told if verbose else some(told, _OTHERS):
            yield from _hanging("  ", f"{said}  {line}", width)
    if verbose and report.verdicts:
        yield []
        yield from _every_check(report, width)


def _head(report: Report, width: int, verbose: bool) -> Iterator[Line]:
    yield from _hanging("", f"headwise doctor  {report.target}", width)
    if report.assumed:
        pairs = [f"{visible(key)} {shown(value)}" for key, value in report.assumed.items()]
        yield from labelled("assumed", _packed(pairs, width - 11), width)
    for note in report.notes if verbose else some(report.notes, _OTHERS):
        yield from labelled("note   ", [note], width)


def _packed(items: Sequence[str], width: int) -> list[str]:
    """Items with commas between them, as many on a line as fit, each kept whole where it has room."""
    lines: list[str] = []
    for number, item in enumerate(items):
        text = item + ("," if number < len(items) - 1 else "")
        if lines and columns(f"{lines[-1]} {text}") <= width:
            lines[-1] += f" {text}"
        else:
            lines.append(text)
    return lines


def _hanging(indent: str, text: str, width: int) -> Iterator[Line]:
    folded = fold(visible(text), width - len(indent) - _INDENT)
    for number, part in enumerate(folded):
        yield [(indent + " " * (_INDENT if number else 0) + part, "")]


def _finding(finding: Finding, width: int, verbose: bool) -> Iterator[Line]:
    title = visible(finding.title)
    head = f"{visible(finding.id)} {visible(finding.name)}{'  ' if title else ''}"
    room = width - len(f"  [{finding.severity}]")
    titles = fold(head + title, room - 2)
    for number, part in enumerate(titles):
        line: Line = [(part, "bold")] if number == 0 else [("  " + part, "bold")]
        if number == len(titles) - 1:
            line.append((f"  [{finding.severity}]", _STYLES[finding.severity]))
        yield line
    if finding.file:
        yield from _at(place(finding.file, finding.line), source(finding.file, finding.line), width)
    for other in finding.related:
        where = f"also {place(other.file, other.line)} ({visible(other.role)})"
        yield from _at(where, source(other.file, other.line), width)
    if finding.module:
        yield from labelled("In", [finding.module], width)
    evidence = visible_lines(finding.evidence)
    yield from labelled("Saw", evidence if verbose else some(evidence, _LINES), width)
    yield from labelled("Why", visible_lines(finding.why), width)
    yield from labelled("Fix", visible_lines(finding.fix), width)
    explained = finding.explains if verbose else some(finding.explains, _NAMES)
    yield from labelled("Explains", [", ".join(explained)] if explained else [], width)


def _at(where: str, code: str, width: int) -> Iterator[Line]:
    """The place and what stands there, on one line where both have room."""
    if code and _INDENT + columns(where) + 3 + columns(code) <= width:
        yield [(" " * _INDENT, ""), (where, "cyan"), ("   " + code, "")]
        return
    for number, part in enumerate(fold(where, width - _INDENT - 2)):
        yield [(" " * (_INDENT + 2 * bool(number)), ""), (part, "cyan")]
    if code:
        for part in fold(code, width - _INDENT - 5):
            yield [(" " * (_INDENT + 5), ""), (part, "")]


def _every_check(report: Report, width: int) -> Iterator[Line]:
    name = names()
    longest = max((len(name.get(id, "")) for id in report.verdicts), default=0)
    for id, held in sorted(report.verdicts.items()):
        start = f"{id} {name.get(id, ''):<{longest}}  {held.verdict:<14}  "
        if columns(start) > width // 2:  # no room for three columns
            yield from _hanging("", start + held.tried, width)
            continue
        folded = fold(visible(held.tried), width - columns(start))
        for number, part in enumerate(folded):
            yield [(start if number == 0 else " " * columns(start), ""), (part, "")]
