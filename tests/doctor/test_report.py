"""The report as data, as JSON and as text."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from doctor import sample
from headwise.doctor import check
from headwise.doctor.check import Verdicted
from headwise.doctor.report import Report
from headwise.errors import ConfigError, HeadwiseError

SCHEMA = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "report.schema.json").read_text(encoding="utf-8")
)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "checks", lambda: sample.CARDS)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(tmp_path)
    return sample.report(sample.write_source(tmp_path))


def departures(value: Any, schema: dict[str, Any], at: str = "report") -> list[str]:
    """Where a value departs from a schema, for the few words of JSON Schema that ours uses."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    types = {"object": dict, "array": list, "string": str, "integer": int}
    known = {"type", "const", "enum", "pattern", "minimum", "items", "properties", "required", "description"}
    known |= {"additionalProperties", "propertyNames", "$schema", "title", "$defs"}
    assert set(schema) <= known, f"this validator does not know {set(schema) - known}"
    if "type" in schema and not isinstance(value, types[schema["type"]]):
        return [f"{at}: {value!r} is no {schema['type']}"]
    if "const" in schema and value != schema["const"]:
        return [f"{at}: {value!r}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r}"]
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return [f"{at}: {value!r}"]
    if "minimum" in schema and value < schema["minimum"]:
        return [f"{at}: {value!r}"]
    wrong = [f"{at}.{key}: missing" for key in schema.get("required", []) if key not in value]
    if isinstance(value, dict):
        others = schema.get("additionalProperties", {})
        for key, held in value.items():
            if "propertyNames" in schema:
                wrong += departures(key, schema["propertyNames"], f"{at}.{key}")
            inner = schema.get("properties", {}).get(key, others)
            wrong += (
                departures(held, inner, f"{at}.{key}") if inner is not False else [f"{at}.{key}: not known"]
            )
    if isinstance(value, list) and "items" in schema:
        for number, held in enumerate(value):
            wrong += departures(held, schema["items"], f"{at}[{number}]")
    return wrong


def forms(report: Report) -> list[str]:
    return [
        str(report),
        report.to_text(color=True),
        report.to_text(verbose=True),
        report.to_json(),
        report.to_html(),
        report.to_sarif(),
        report.to_junit(),
    ]


def test_the_same_report_gives_the_same_bytes_however_long_it_took(report: Report) -> None:
    again = replace(sample.report(report.findings[0].file), seconds=99.0)
    backwards = replace(again, verdicts=dict(reversed(again.verdicts.items())))
    assert report == again
    assert forms(report) == forms(again) == forms(backwards)


def test_every_form_can_be_written_as_utf8_whatever_the_user_wrote(report: Report) -> None:
    @settings(max_examples=25)
    @given(sample.TEXT)
    def law(text: str) -> None:
        for form in forms(sample.filled(report.findings[0].file, text)):
            form.encode("utf-8")

    law()


def test_json_is_as_its_schema_says(report: Report) -> None:
    told = json.loads(report.to_json())
    assert departures(told, SCHEMA) == []
    assert told == report.to_dict()
    assert list(told) == SCHEMA["required"]
    assert list(told["findings"][0]) == SCHEMA["$defs"]["finding"]["required"]
    assert told["findings"][0]["line"] == 13
    assert told["checks"]["HW802"] == {"verdict": "not-applicable", "tried": "needs generate"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["version"], "2"),
        (["findings", 0, "severity"], "fatal"),
        (["findings", 0, "id"], "101"),
        (["findings", 0, "line"], "13"),
        (["findings", 0, "related", 0, "role"], None),
        (["findings", 0, "title"], "not in this version"),
        (["checks", "HW101", "verdict"], "maybe"),
        (["checks", "causal-leak"], {"verdict": "clear", "tried": ""}),
        (["seconds"], 1.25),
    ],
)
def test_the_schema_refuses_what_is_not_so(report: Report, path: list[Any], value: object) -> None:
    told = inner = report.to_dict()
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert len(departures(told, SCHEMA)) == 1


def test_a_finding_s_attributes_are_the_json_s_keys(report: Report) -> None:
    for finding, told in zip(report.findings, report.to_dict()["findings"], strict=True):
        for key in SCHEMA["$defs"]["finding"]["required"]:
            held = getattr(finding, key)
            assert told[key] == ([vars(r) for r in held] if key == "related" else _listed(held))


def _listed(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def test_no_number_in_json_is_bare_nan_and_what_is_no_json_becomes_text(report: Report) -> None:
    assumed: dict[str, object] = {
        "a": float("nan"),
        "b": [float("inf"), (1, 2.5, True, None)],
        "c": {3: Path("x")},
        "d": "\udc80",
    }
    told = json.loads(replace(report, assumed=assumed).to_json(), parse_constant=pytest.fail)
    assert told["assumed"] == {
        "a": "nan",
        "b": ["inf", [1, 2.5, True, None]],
        "c": {"3": "x"},
        "d": "\\udc80",
    }


def test_to_dict_is_made_anew(report: Report) -> None:
    report.to_dict()["assumed"]["kind"] = "encoder"
    report.to_dict()["findings"].clear()
    assert report.to_dict()["assumed"]["kind"] == "decoder" and len(report.to_dict()["findings"]) == 3


def test_worst_and_ok(report: Report) -> None:
    warned = replace(report, findings=report.findings[1:])
    noted = replace(report, findings=report.findings[2:])
    healthy = replace(report, findings=())
    assert [r.worst for r in (report, warned, noted, healthy)] == ["error", "warning", "note", None]
    assert [r.ok() for r in (report, warned, noted, healthy)] == [False, True, True, True]
    assert [r.ok("warning") for r in (report, warned, noted, healthy)] == [False, False, True, True]
    assert [r.ok("note") for r in (report, warned, noted, healthy)] == [False, False, False, True]
    with pytest.raises(ConfigError, match="fail_on must be error, warning or note: got 'fatal'") as refused:
        report.ok("fatal")
    assert isinstance(refused.value, HeadwiseError)


def test_a_check_that_nobody_knows_any_more_is_still_listed(report: Report) -> None:
    told = replace(report, verdicts={"HW999": Verdicted("could-not-run", "gone")})
    assert "HW999 : gone" not in str(told) and "HW999: gone" in str(told)
    assert all("HW999" in form for form in (told.to_json(), told.to_html(), told.to_sarif(), told.to_junit()))


def test_the_report_needs_no_torch() -> None:
    code = "import sys, headwise.doctor.report, headwise.doctor.explain\n"
    code += "print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert not set(done.stdout.split()) & {"torch", "numpy", "jaxtyping", "rich"}


def test_print_ends_with_one_line_break(report: Report) -> None:
    out = io.StringIO()
    print(report, file=out)
    assert out.getvalue() == report.to_text()
