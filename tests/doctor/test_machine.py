"""SARIF and JUnit, as the programs that read them want them."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given, settings

from conftest import Golden
from doctor import sample
from headwise.doctor import check
from headwise.doctor.check import Related
from headwise.doctor.places import visible
from headwise.doctor.report import Report


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "checks", lambda: sample.CARDS)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(tmp_path)
    return sample.report(sample.write_source(tmp_path))


def run(report: Report) -> dict[str, Any]:
    told = json.loads(report.to_sarif(), parse_constant=pytest.fail)
    assert told["version"] == "2.1.0" and "sarif-schema-2.1.0" in told["$schema"]
    assert len(told["runs"]) == 1
    return told["runs"][0]


def cases(report: Report) -> dict[str, Xml.Element]:
    suites = Xml.fromstring(report.to_junit().encode("utf-8"))
    assert suites.tag == "testsuites" and [s.tag for s in suites] == ["testsuite"]
    return {case.attrib["name"]: case for case in suites[0]}


def test_every_result_has_its_rule_level_and_line(report: Report) -> None:
    told = run(report)
    rules = told["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(report.verdicts)
    for finding, result in zip(report.findings, told["results"], strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.id
        assert result["level"] == finding.severity
        assert finding.fix in result["message"]["text"] and finding.title in result["message"]["text"]
    leak = told["results"][0]
    assert leak["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "my_model.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 13},
    }
    assert leak["locations"][0]["logicalLocations"][0]["fullyQualifiedName"] == "blocks.0.attention"
    assert leak["relatedLocations"][0]["message"] == {"text": "the mask is made here"}
    assert leak["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": 9}
    assert "locations" not in told["results"][2]  # no line can be named


def test_a_rule_carries_the_card(report: Report) -> None:
    rules = {rule["id"]: rule for rule in run(report)["tool"]["driver"]["rules"]}
    leak = rules["HW101"]
    assert leak["name"] == "causal-leak" and leak["defaultConfiguration"] == {"level": "error"}
    assert leak["shortDescription"]["text"] == "A position can see the tokens after it"
    assert "Mend causal-leak." in leak["help"]["text"] and leak["properties"]["tags"] == ["masks"]
    assert rules["HW802"] == {"id": "HW802"}  # a check that this version does not know


def test_a_check_that_could_not_run_is_said(report: Report) -> None:
    told = run(report)
    (said,) = told["invocations"][0]["toolExecutionNotifications"]
    assert said["message"]["text"] == "HW305 could not run: ValueError: no table <of> sinusoids"
    assert told["tool"]["driver"]["rules"][said["associatedRule"]["index"]]["id"] == "HW305"


@pytest.mark.parametrize(
    ("file", "location"),
    [
        (
            "sub dir/caf\u00e9 #1%:?.py",
            {"uri": "sub%20dir/caf%C3%A9%20%231%25%3A%3F.py", "uriBaseId": "%SRCROOT%"},
        ),
        ("odd\udcff.py", {"uri": "odd%FF.py", "uriBaseId": "%SRCROOT%"}),
        ("/nowhere/a b.py", {"uri": "file:///nowhere/a%20b.py"}),
    ],
)
def test_addresses_are_relative_and_encoded(report: Report, file: str, location: dict[str, str]) -> None:
    told = run(replace(report, findings=(replace(report.findings[0], file=file),)))
    assert told["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"] == location


def test_a_cell_has_no_address(report: Report) -> None:
    told = run(replace(report, findings=(replace(report.findings[0], file="<ipython-input-3-ab>", line=5),)))
    (where,) = told["results"][0]["locations"]
    assert "physicalLocation" not in where
    assert where["logicalLocations"][0]["fullyQualifiedName"] == "Cell In[3], line 5"


def test_a_fingerprint_outlives_lines_added_above(report: Report, tmp_path: Path) -> None:
    def fingerprints(told: Report) -> list[str]:
        return [r["partialFingerprints"]["headwiseFinding/v1"] for r in run(told)["results"]]

    before = fingerprints(report)
    assert len(set(before)) == len(before)
    (tmp_path / "my_model.py").write_text("# one\n# two\n" + sample.SOURCE, encoding="utf-8")
    moved = [replace(f, line=f.line + 2) if f.file else f for f in report.findings]
    import linecache

    linecache.checkcache()
    assert fingerprints(replace(report, findings=tuple(moved))) == before
    assert fingerprints(report) != before  # other code stands there now
    twice = fingerprints(replace(report, findings=report.findings[:1] * 2))
    assert len(set(twice)) == 2


def test_sarif(report: Report, golden: Golden) -> None:
    text = re.sub(r'("version": )"\d+\.\d+\.\d+[^"]*",\n( +"rules")', r'\1"VERSION",\n\2', report.to_sarif())
    golden("doctor_sarif", text)


def test_each_check_is_a_case_and_the_suite_counts_them(report: Report) -> None:
    told = cases(report)
    kinds = {name: next((child.tag for child in case), "passed") for name, case in told.items()}
    assert kinds == {
        "HW101 causal-leak": "failure",
        "HW105 mask-inverted": "passed",
        "HW112 padding-attended": "skipped",
        "HW305 sinusoid-wrong": "error",
        "HW412 depth-unstable": "failure",
        "HW605 unused-parameters": "system-out",
        "HW802": "skipped",
    }
    many = Counter(kinds.values())
    for element in (root := Xml.fromstring(report.to_junit().encode()), root[0]):
        assert element.attrib["tests"] == "7"
        assert element.attrib["failures"] == str(many["failure"]) == "2"
        assert element.attrib["errors"] == str(many["error"]) == "1"
        assert element.attrib["skipped"] == str(many["skipped"]) == "2"


def test_a_case_says_why(report: Report) -> None:
    told = cases(report)
    failure = told["HW101 causal-leak"][0]
    assert failure.attrib["message"].startswith("changing tokens after t=0")
    assert failure.attrib["type"] == "error" and told["HW412 depth-unstable"][0].attrib["type"] == "warning"
    assert "my_model.py:13" in (failure.text or "") and "Explains  padding-attended" in (failure.text or "")
    assert told["HW101 causal-leak"].attrib["file"] == "my_model.py"
    assert told["HW802"][0].attrib["message"] == "needs generate"
    assert told["HW112 padding-attended"][0].attrib["message"] == "found, a consequence of HW101 causal-leak"
    assert told["HW305 sinusoid-wrong"][0].attrib["message"] == "ValueError: no table <of> sinusoids"
    assert told["HW101 causal-leak"].attrib["classname"] == "headwise.masks"


def test_two_findings_of_one_check_are_one_failure(report: Report) -> None:
    second = replace(
        report.findings[0], evidence="again", module="blocks.1", related=(Related("x.py", 1, "r"),)
    )
    noted = replace(report.findings[0], evidence="only a note", severity="note")
    told = cases(replace(report, findings=(report.findings[0], second, noted)))
    (failure,) = told["HW101 causal-leak"]
    assert failure.attrib["message"].endswith("(noise 1e-06); again")
    assert "blocks.1" in (failure.text or "") and "only a note" not in (failure.text or "")


def test_xml_and_json_stand_whatever_the_user_wrote(report: Report) -> None:
    @settings(max_examples=25)
    @given(sample.TEXT)
    def law(text: str) -> None:
        told = sample.filled(report.findings[0].file, text)
        message = cases(told)["HW802"][0].attrib["message"]
        assert message == visible(text)
        assert run(told)["results"][0]["properties"]["evidence"] == visible(text)

    law()


def test_junit(report: Report, golden: Golden) -> None:
    golden("doctor_junit", report.to_junit())
