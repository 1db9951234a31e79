"""The report for other programs: SARIF 2.1.0 (code hosts, editors) and JUnit XML (CI servers)."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_from_bytes
from xml.etree import ElementTree as Xml

from headwise.doctor import check as cards
from headwise.doctor.check import GROUPS, Check, Finding
from headwise.doctor.places import beneath, cell_of, place, source, visible, visible_lines

if TYPE_CHECKING:
    from headwise.doctor.report import Report

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def to_sarif(report: Report) -> str:
    """One run: a rule a check, a result a finding, a notification for each check that could not run.

    Fingerprints come from the check, the file, the module and the code on the line, not from the line's
    number: a finding stays the same finding when lines are added above it.
    """
    from headwise import __version__  # only here: to look it up takes a while

    ids = sorted({*report.verdicts, *(finding.id for finding in report.findings)})
    known = _known()
    prints = _fingerprints(report)
    run = {
        "tool": {
            "driver": {
                "name": "headwise doctor",
                "version": __version__,
                "rules": [_rule(id, known.get(id)) for id in ids],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {
                        "level": "warning",
                        "message": {"text": visible(f"{id} could not run: {held.tried}")},
                        "associatedRule": {"id": id, "index": ids.index(id)},
                    }
                    for id, held in report.with_verdict("could-not-run").items()
                ],
            }
        ],
        "results": [
            _result(finding, ids.index(finding.id), print_)
            for finding, print_ in zip(report.findings, prints, strict=True)
        ],
        "properties": {
            "target": visible(report.target),
            "assumed": report.to_dict()["assumed"],
            "notes": [visible(note) for note in report.notes],
        },
    }
    return (
        json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, allow_nan=False) + "\n"
    )


def to_junit(report: Report) -> str:
    """One suite, a test case a check.

    Errors and warnings fail, 'not applicable' is skipped with its reason, 'could not run' is an error. A
    check whose finding stands beneath another's is skipped and names that one: one fault, one failure.
    """
    root = Xml.Element("testsuites", name="headwise doctor")
    suite = Xml.SubElement(root, "testsuite", name=visible(f"headwise doctor {report.target}"))
    known = _known()
    many = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    for id in sorted({*report.verdicts, *(finding.id for finding in report.findings)}):
        many["tests"] += 1
        kind = _case(suite, report, id, known.get(id))
        if kind:
            many[kind] += 1
    for element in (root, suite):
        element.attrib.update({name: str(number) for name, number in many.items()})
    Xml.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + Xml.tostring(root, encoding="unicode") + "\n"


def _known() -> dict[str, Check]:
    return {card.id: card for card in cards.checks()}


def _rule(id: str, card: Check | None) -> dict[str, Any]:
    if card is None:
        return {"id": id}
    return {
        "id": id,
        "name": card.name,
        "shortDescription": {"text": visible(card.title)},
        "fullDescription": {"text": visible(card.why)},
        "help": {"text": visible(f"{card.why} {card.fix}")},
        "defaultConfiguration": {"level": card.severity},
        "properties": {"tags": [GROUPS.get(card.group, card.group)]},
    }


def _result(finding: Finding, index: int, fingerprint: str) -> dict[str, Any]:
    title = finding.title or finding.name
    evidence = " ".join(visible_lines(finding.evidence))
    result: dict[str, Any] = {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{visible(title)}: {evidence.rstrip('.')}. {visible(finding.fix)}"},
        "partialFingerprints": {"headwiseFinding/v1": fingerprint},
        "properties": {
            "evidence": visible(finding.evidence),
            "why": visible(finding.why),
            "fix": visible(finding.fix),
            "explains": list(finding.explains),
        },
    }
    location = _location(finding.file, finding.line)
    if finding.module:
        named = {"fullyQualifiedName": visible(finding.module), "kind": "member"}
        location.setdefault("logicalLocations", []).append(named)
    if location:
        result["locations"] = [location]
    if finding.related:
        result["relatedLocations"] = [
            {"id": number, "message": {"text": visible(other.role)}} | _location(other.file, other.line)
            for number, other in enumerate(finding.related)
        ]
    return result


def _location(file: str, line: int) -> dict[str, Any]:
    if not file:
        return {}
    if file.startswith("<") or cell_of(file) is not None:  # a cell or typed text: no file to open
        return {"logicalLocations": [{"fullyQualifiedName": place(file, line)}]}
    inside = beneath(file)
    if inside is None:
        where = {"uri": Path(os.path.abspath(file)).as_uri()}
    else:
        where = {"uri": quote_from_bytes(os.fsencode(inside.replace(os.sep, "/"))), "uriBaseId": "%SRCROOT%"}
    physical: dict[str, Any] = {"artifactLocation": where}
    if line > 0:
        physical["region"] = {"startLine": line}
    return {"physicalLocation": physical}


def _fingerprints(report: Report) -> list[str]:
    seen: dict[str, int] = {}
    prints: list[str] = []
    for finding in report.findings:
        code = source(finding.file, finding.line) if finding.file else ""
        about = "\n".join((finding.id, beneath(finding.file) or finding.file, finding.module, code))
        seen[about] = seen.get(about, 0) + 1
        told = f"{about}\n{seen[about]}".encode("utf-8", "backslashreplace")
        prints.append(hashlib.sha256(told).hexdigest()[:32])
    return prints


def _case(suite: Xml.Element, report: Report, id: str, card: Check | None) -> str:
    """Add the test case of a check; returns the count of the suite it belongs to, "" where it passed."""
    group = GROUPS.get(id[:3], id[:3]).replace(" ", "-")
    case = Xml.SubElement(
        suite, "testcase", classname=f"headwise.{group}", name=f"{id} {card.name}" if card else id
    )
    found = [finding for finding in report.findings if finding.id == id]
    if found:
        if found[0].file:
            case.attrib.update(file=visible(beneath(found[0].file) or found[0].file), line=str(found[0].line))
        bad = [finding for finding in found if finding.severity != "note"]
        told = "\n\n".join("\n".join(_lines(finding)) for finding in bad or found)
        if bad:
            message = "; ".join(visible(finding.evidence) for finding in bad)
            Xml.SubElement(case, "failure", message=message, type=bad[0].severity).text = told
            return "failures"
        Xml.SubElement(case, "system-out").text = told
        return ""
    held = report.verdicts[id]
    if held.verdict == "could-not-run":
        Xml.SubElement(case, "error", message=visible(held.tried), type="could-not-run")
        return "errors"
    if held.verdict == "clear":
        return ""
    reason = held.tried
    if held.verdict == "found":
        cause = [f"{f.id} {f.name}" for f in report.findings if card and card.name in f.explains]
        reason = f"found, a consequence of {', '.join(cause)}" if cause else "found, and set aside"
    Xml.SubElement(case, "skipped", message=visible(reason))
    return "skipped"


def _lines(finding: Finding) -> list[str]:
    lines = [place(finding.file, finding.line)] if finding.file else []
    lines += [f"also {place(other.file, other.line)} ({visible(other.role)})" for other in finding.related]
    lines += [f"In   {visible(finding.module)}"] if finding.module else []
    for label, said in (("Saw", finding.evidence), ("Why", finding.why), ("Fix", finding.fix)):
        lines += [f"{label if n == 0 else '   '}  {line}" for n, line in enumerate(visible_lines(said))]
    return lines + ([visible(f"Explains  {', '.join(finding.explains)}")] if finding.explains else [])
