"""The doctor finds in each specimen exactly what was planted, at its line; in the healthy ones nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwise.doctor.examine import examine_subject
from headwise.doctor.load import load
from headwise.doctor.report import Report

SPECIMENS = sorted((Path(__file__).parent / "specimens").glob("*.py"))
MARK = re.compile(r"# BUG (HW\d{3})\s*$")


def planted(path: Path) -> set[tuple[str, int]]:
    """The ids and lines that a specimen's `# BUG HW101` comments mark."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    return {(mark.group(1), number) for number, line in lines if (mark := MARK.search(line))}


def examined(path: Path) -> Report:
    loaded = load(str(path))
    with loaded.running():
        return examine_subject(
            loaded.subject, making=loaded.making, target=path.name, assumed=loaded.assumed, notes=loaded.notes
        )


@pytest.mark.slow
@pytest.mark.parametrize("path", SPECIMENS, ids=lambda path: path.stem)
def test_findings_are_exactly_the_planted_bugs(path: Path) -> None:
    report = examined(path)
    found = {(finding.id, finding.line) for finding in report.findings if finding.severity != "note"}
    assert found == planted(path), str(report)
    crashed = {id: held.tried for id, held in report.with_verdict("could-not-run").items()}
    assert crashed == {}


def test_there_are_enough_of_them() -> None:
    healthy = [path for path in SPECIMENS if path.stem.startswith("healthy_")]
    assert len(SPECIMENS) - len(healthy) >= 70
    assert len(healthy) >= 20
    assert all(not planted(path) for path in healthy)


def test_each_is_named_for_what_is_planted_in_it() -> None:
    for path in SPECIMENS:
        if not path.stem.startswith("healthy_"):
            assert {id for id, _ in planted(path)} == {path.stem[:5]}, path.name
