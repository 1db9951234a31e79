"""The report of one examination: what was examined, what was assumed, what was found and how much was tried.

It is data and nothing else. Each form is written in a module of its own (`text`, `page`, `machine`), and the
same report gives the same bytes in every one of them; the seconds it took are kept out of all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from headwise.doctor import machine, page, text
from headwise.doctor.check import SEVERITIES, Finding, Severity, Verdict, Verdicted
from headwise.errors import ConfigError
from headwise.files import write_text_atomically

VERSION = "1"  # of the JSON form, which docs/report.schema.json describes


@dataclass(frozen=True)
class Report:
    """What `headwise.examine` returns; print it, or take one of its forms.

    target: what was examined, as the user knows it. assumed: what was told or taken for granted, in order.
    findings: in order of cause, consequences beneath their cause as names in `explains`.
    verdicts: of every check, by its id. notes: what the user should know about how the model was examined.
    """

    version: str
    target: str
    assumed: dict[str, object]
    findings: tuple[Finding, ...]
    verdicts: dict[str, Verdicted]
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def worst(self) -> Severity | None:
        """The gravest severity among the findings, None where nothing was found."""
        present = {finding.severity for finding in self.findings}
        return next((severity for severity in SEVERITIES if severity in present), None)

    def ok(self, fail_on: str = "error") -> bool:
        """Whether nothing was found at this severity or above it: "warning" lets notes pass."""
        if fail_on not in SEVERITIES:
            raise ConfigError(f"fail_on must be {', '.join(SEVERITIES[:-1])} or note: got {fail_on!r}")
        return self.worst not in SEVERITIES[: SEVERITIES.index(fail_on) + 1]

    def with_verdict(self, verdict: Verdict) -> dict[str, Verdicted]:
        """The checks that came to this verdict, by number."""
        return {id: self.verdicts[id] for id in sorted(self.verdicts) if self.verdicts[id].verdict == verdict}

    def __str__(self) -> str:
        return self.to_text().rstrip("\n")

    def to_text(self, color: bool = False, width: int = 100, verbose: bool = False) -> str:
        """Text of at most `width` columns; with `verbose` every check's verdict, and nothing cut short."""
        return text.to_text(self, color, width, verbose)

    def to_dict(self) -> dict[str, Any]:
        """The JSON report as plain objects, made anew at each call."""
        return {
            "version": self.version,
            "target": _plain(self.target),
            "assumed": _plain(self.assumed),
            "notes": _plain(self.notes),
            "findings": [_plain(_finding(finding)) for finding in self.findings],
            "checks": {
                id: {"verdict": held.verdict, "tried": _plain(held.tried)}
                for id, held in sorted(self.verdicts.items())
            },
        }

    def to_json(self) -> str:
        """One JSON object, as docs/report.schema.json describes it; numbers that are not finite are words."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def to_html(self, path: str | Path | None = None) -> str:
        """One self-contained page, without scripts and without a network; written where a path is given.

        Errors: StorageError as write_atomically.
        """
        html = page.to_html(self)
        if path is not None:
            write_text_atomically(Path(path), html)
        return html

    def to_sarif(self) -> str:
        """SARIF 2.1.0, which code hosts and editors read."""
        return machine.to_sarif(self)

    def to_junit(self) -> str:
        """JUnit XML, a test case a check, which CI servers read."""
        return machine.to_junit(self)

    def _repr_html_(self) -> str:
        return page.fragment(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        # IPython in a terminal would show the dataclass's own repr, which is no reading matter
        return {"text/plain": str(self), "text/html": page.fragment(self)}


def _finding(finding: Finding) -> dict[str, object]:
    return {
        "id": finding.id,
        "name": finding.name,
        "severity": finding.severity,
        "module": finding.module,
        "file": finding.file,
        "line": finding.line,
        "related": [{"file": r.file, "line": r.line, "role": r.role} for r in finding.related],
        "evidence": finding.evidence,
        "why": finding.why,
        "fix": finding.fix,
        "explains": list(finding.explains),
    }


def _plain(value: object) -> Any:
    """The value in JSON's own types; what has none is its text, as are numbers that are not finite."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return {_plain(str(key)): _plain(held) for key, held in pairs.items()}
    if isinstance(value, list | tuple):
        return [_plain(held) for held in cast("list[object]", value)]
    # a file name may hold bytes that are no text: half a surrogate pair, which is no JSON either
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
