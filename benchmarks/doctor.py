"""How many planted faults the doctor names, at which line, and whether it is silent on healthy models.

    python benchmarks/doctor.py CASES_DIR... [--only TEXT] [--json FILE]

A case is a Python file with subject(), FAULT (the name of what is wrong, None: nothing is) and WHERE (the
qualified name of the function or class at fault). The doctor gets the file as any user's; FAULT and WHERE are
read here, from the source, and only compared. Exit code 1 where a fault was not first among errors and
warnings, or neither its line nor a related one lies inside WHERE, or a healthy model got an error or warning.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

from headwise.doctor.check import Finding
from headwise.doctor.examine import examine_subject
from headwise.doctor.load import load
from headwise.errors import HeadwiseError

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Row:
    """What became of one case. line: primary, related, no, or - where there is nothing to compare."""

    case: str
    fault: str | None
    first: str
    is_first: bool
    line: str
    others: list[str]
    seconds: float
    error: str = ""

    @property
    def is_missed(self) -> bool:
        if self.fault is None:
            return bool(self.others or self.error)
        return not self.is_first or self.line == "no"


def main() -> int:
    """Print a row a case and the totals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="CASES_DIR", help="folders, or single files")
    parser.add_argument("--only", default="", help="cases whose file name holds this")
    parser.add_argument("--json", type=Path, help="write the rows to a file as well")
    options = parser.parse_args()
    paths = [p for f in options.folders for p in (sorted(f.glob("*.py")) if f.is_dir() else [f])]
    paths = [path for path in paths if options.only in path.name and not path.name.startswith("_")]
    if not paths:
        parser.error("no cases there")
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    width = max(len(path.stem) for path in paths)
    print(f"{'case':{width}}  {'fault':28} {'first':29} line     seconds  others")
    rows: list[Row] = []
    for path in paths:
        row = examined(path)
        rows.append(row)
        first = "yes" if row.is_first else row.first or "nothing"
        if row.fault is None:
            first = row.first or "silent"
        told = row.error or ", ".join(row.others) or "-"
        mark = "MISS " if row.is_missed else ""
        fault = row.fault or "(healthy)"
        print(
            f"{path.stem:{width}}  {fault:28} {first:29} {row.line:8} {row.seconds:7.2f}  {mark}{told}",
            flush=True,
        )
    print(totals(rows, time.perf_counter() - began))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
    return int(any(row.is_missed for row in rows))


def examined(path: Path) -> Row:
    """Examine one case as `headwise doctor` does, then compare with what its source says."""
    fault, where = expected(path)
    began = time.perf_counter()
    findings: list[Finding] = []
    error = ""
    try:
        loaded = load(str(path))
        with loaded.running():
            report = examine_subject(
                loaded.subject,
                making=loaded.making,
                target=str(path),
                assumed=loaded.assumed,
                notes=loaded.notes,
            )
        findings = [finding for finding in report.findings if finding.severity != "note"]
    except HeadwiseError as refused:
        error = str(refused)
    except Exception as crashed:  # a bug of the doctor's: the other cases go on
        error = f"crashed: {type(crashed).__name__}: {crashed}"
    seconds = time.perf_counter() - began
    named = next((finding for finding in findings if finding.name == fault), None)
    return Row(
        case=path.stem,
        fault=fault,
        first=findings[0].name if findings else "",
        is_first=bool(findings) and findings[0].name == fault,
        line="-" if fault is None else "no" if named is None else side(named, path, where),
        others=[finding.name for finding in findings if finding.name != fault],
        seconds=round(seconds, 3),
        error=error,
    )


def side(finding: Finding, path: Path, where: str | None) -> str:
    """Whether the primary line lies inside WHERE, else a related one."""
    inside = lines_of(path, where) if where else range(0)

    def is_inside(file: str, line: int) -> bool:
        return bool(file) and os.path.realpath(file) == os.path.realpath(path) and line in inside

    if is_inside(finding.file, finding.line):
        return "primary"
    return "related" if any(is_inside(r.file, r.line) for r in finding.related) else "no"


def expected(path: Path) -> tuple[str | None, str | None]:
    """FAULT and WHERE of a case."""
    found: dict[str, str | None] = {}
    for node in ast.parse(path.read_bytes()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name in ("FAULT", "WHERE"):
                found[name] = ast.literal_eval(node.value)
    if "FAULT" not in found:
        sys.exit(f"{path} is no case: it has no FAULT")
    return found["FAULT"], found.get("WHERE")


def lines_of(path: Path, qualified: str) -> range:
    """The lines of a function or class, its decorators included."""
    level: list[ast.stmt] = ast.parse(path.read_bytes()).body
    found: ast.ClassDef | Function | None = None
    for part in qualified.replace(".<locals>", "").split("."):
        inner = [node for statement in level for node in ast.walk(statement)]
        named = [n for n in [*level, *inner] if isinstance(n, ast.ClassDef | Function) and n.name == part]
        found = named[0] if named else None
        if found is None:
            sys.exit(f"{path} is no case: WHERE names {qualified}, which it does not define")
        level = found.body
    assert found is not None and found.end_lineno is not None
    first = min([found.lineno, *(decorator.lineno for decorator in found.decorator_list)])
    return range(first, found.end_lineno + 1)


def totals(rows: list[Row], seconds: float) -> str:
    """The sums, and whether each target is met."""
    faults = [row for row in rows if row.fault is not None]
    healthy = [row for row in rows if row.fault is None]
    primary = sum(row.line == "primary" for row in faults)
    either = sum(row.line in ("primary", "related") for row in faults)
    collateral = sum(bool(row.others) for row in faults)
    slowest = max(rows, key=lambda row: row.seconds)
    return "\n".join(
        [
            "",
            f"faults found first, under their own name: {sum(r.is_first for r in faults)} of {len(faults)}",
            f"primary line inside WHERE:                {primary} of {len(faults)} (four in five wanted)",
            f"primary or related line inside WHERE:     {either} of {len(faults)}",
            f"faults with other errors or warnings:     {collateral} of {len(faults)}",
            f"healthy models without error or warning:  {sum(not r.is_missed for r in healthy)} of "
            f"{len(healthy)}",
            f"seconds: {seconds:.1f} in all, {slowest.seconds:.1f} at most ({slowest.case})",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
