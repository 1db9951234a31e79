"""Write docs/checks: a page for each of the doctor's checks, from its card, a specimen and a real report.

    python docs/make_checks.py [--only HW204 ...] [--check] [--keep-reports]

A page's example is the one specimen of the check (tests/doctor/specimens) that says how it is put right:

    x = self.refine(x, None)  # BUG HW102
    # RIGHT x = self.refine(x, hidden)

`# RIGHT` lines replace the line above them; with no code behind it, that line is left out. At the end of a
line, `# RIGHT code` replaces it and `# RIGHT + code` comes after it. Each specimen is executed and examined,
a few seconds each; after a change to the words of a card alone, --keep-reports takes the reports as they are.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import difflib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.doctor.check import GROUPS, Check, checks

ROOT = Path(__file__).resolve().parent.parent
SPECIMENS = ROOT / "tests" / "doctor" / "specimens"
PAGES = ROOT / "docs" / "checks"
LONG = 40  # lines of a class from which only its functions at fault are shown
WIDTH = 100  # of the report, as on a terminal

_BUG = re.compile(r"\s*# BUG (HW\d{3})\s*$")
_BENEATH = re.compile(r"^(\s*)# RIGHT(?: (.*))?$")
_BEHIND = re.compile(r"^(.*\S)  # RIGHT(?: (\+ )?(.*))?$")
_MADE = "<!-- Written by docs/make_checks.py: change the check's card or its specimen, not this page. -->"

# What a check needs of a subject, told by what is lacking: 'It cannot be decided where ...'
LACKING = {
    "run": "the model does not run on its batch",
    "failure": "the model runs on its batch",
    "kind": "nothing says whether the model is a decoder, an encoder or an encoder-decoder",
    "causal": "the model is not causal, or nothing says what kind it is",
    "decoder": "the model is no decoder, or nothing says what kind it is",
    "encoder": "the model is no encoder, or nothing says what kind it is",
    "encoder-decoder": "the model is no encoder-decoder",
    "encoder-side": "the model has no encoder, or nothing says what kind it is",
    "tokens": "the inputs are not token ids",
    "stream": "no input is a sequence of tokens or vectors",
    "sequence": "the output has no row for each position",
    "sites": "no attention (a product, a softmax, a product) is recognised",
    "targets": "no targets are given",
    "loss": "no loss with its targets is given",
    "optimizer": "no optimizer is given",
    "generate": "no generate function is given",
    "train_step": "no train_step is given",
    "padding": "neither a pad_id nor a mask among the inputs is given",
    "finite": "the logits are not finite numbers (HW901 says why)",
    "rows": "the batch has one row only",
}


@dataclass(frozen=True)
class Example:
    """A specimen, its marks read: the file as written, the file put right, and what of it to show.

    as_marked: the wrong file with blanks for its marks, so that its lines have the specimen's numbers.
    line: of the bug in `as_marked`. shown: the numbers of the lines in `wrong` that are at fault or change.
    """

    path: Path
    wrong: str
    right: str
    as_marked: str
    line: int
    shown: tuple[int, ...]


def read(path: Path) -> Example:
    """The specimen at a path. Law: the wrong file is the specimen without its comments that mark."""
    wrong: list[str] = []
    right: list[str] = []
    marked: list[str] = []
    shown: list[int] = []
    line = 0
    is_run = False  # a `# RIGHT` line stands above: the next one adds to it
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if beneath := _BENEATH.match(text):
            if not is_run:
                right.pop()
                shown.append(len(wrong))
            if beneath[2]:
                right.append(beneath[1] + beneath[2])
            marked.append("")
            is_run = True
            continue
        is_run = False
        if bug := _BUG.search(text):
            line = number
            text = text[: bug.start()]
            shown.append(len(wrong) + 1)
        put_right = [text]
        if behind := _BEHIND.match(text):
            text, code = behind[1], behind[3] or ""
            indent = text[: len(text) - len(text.lstrip())]
            put_right = [text] if behind[2] else []
            put_right += [indent + code] if code else []
            shown.append(len(wrong) + 1)
        wrong.append(text)
        marked.append(text)
        right += put_right
    as_file = ["\n".join(lines) + "\n" for lines in (wrong, right, marked)]
    return Example(path, as_file[0], as_file[1], as_file[2], line, tuple(sorted(set(shown))))


def specimen(id: str) -> Path:
    """The one specimen of a check that says how it is put right. Errors: LookupError for none, or several."""
    paths = [p for p in sorted(SPECIMENS.glob(f"{id}_*.py")) if "# RIGHT" in p.read_text(encoding="utf-8")]
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths) or "none"
        raise LookupError(f"{id} needs one specimen with `# RIGHT` lines: got {names}")
    return paths[0]


def excerpt(code: str, lines: Sequence[int]) -> str:
    """The classes and functions that hold these lines; of a long class those functions only."""
    parts = [
        _part(code, statement, held)
        for statement in ast.parse(code).body
        if (held := [line for line in lines if _first(statement) <= line <= (statement.end_lineno or 0)])
    ]
    return "\n\n\n".join(parts)


def _part(code: str, statement: ast.stmt, lines: Sequence[int]) -> str:
    first, last = _first(statement), statement.end_lineno or 0
    if not isinstance(statement, ast.ClassDef) or last - first < LONG:
        return _cut(code, first, last)
    inner = [
        _cut(code, _first(member), member.end_lineno or 0)
        for member in statement.body
        if any(_first(member) <= line <= (member.end_lineno or 0) for line in lines)
    ]
    head = _cut(code, first, statement.body[0].lineno - 1).rstrip()
    return "\n\n".join([f"{head}\n    ...", *inner])


def _first(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def _cut(code: str, first: int, last: int) -> str:
    return "\n".join(code.splitlines()[first - 1 : last])


def difference(example: Example) -> str:
    """What changes from wrong to right, with the lines about it; gaps are dots."""
    lines = difflib.unified_diff(
        example.wrong.splitlines(), example.right.splitlines(), n=1, lineterm="", fromfile="", tofile=""
    )
    told = [" ..." if line.startswith("@@") else line.rstrip() for line in list(lines)[3:]]
    return "\n".join(told).strip("\n")


def said(card: Check, example: Example) -> str:
    """What the doctor says of the wrong file: the check's own finding, as text.

    Errors: LookupError where the check does not find its bug at its line.
    """
    from headwise.doctor.examine import examine_subject
    from headwise.doctor.load import load

    # in a folder of its own, which is also the current one: the report then names the file alone
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        name = example.path.name
        Path(name).write_text(example.as_marked, encoding="utf-8")
        loaded = load(name)
        with loaded.running():
            report = examine_subject(
                loaded.subject,
                making=loaded.making,
                target=name,
                assumed=loaded.assumed,
                notes=loaded.notes,
            )
        found = [f for f in report.findings if f.id == card.id and f.line == example.line]
        if not found:
            others = ", ".join(f"{f.id} line {f.line}" for f in report.findings) or "nothing"
            raise LookupError(f"{card.id} is not found at line {example.line} of {name}: got {others}")
        text = dataclasses.replace(report, findings=(found[0],)).to_text(width=WIDTH)
    blocks = text.split("\n\n")
    return next(block for block in blocks if block.startswith(f"{card.id} {card.name}"))


def kept(card: Check) -> str:
    """The report that the page has. Errors: LookupError where there is none."""
    path = PAGES / f"{card.id}.md"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    blocks = re.findall(r"^```text\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    if len(blocks) != 1:
        raise LookupError(f"{card.id} has no page with a report to keep: leave --keep-reports out")
    return blocks[0]


def page(card: Check, example: Example, report: str) -> str:
    """The page of a check, as Markdown."""
    where = f"../../{example.path.relative_to(ROOT).as_posix()}"
    parts = [
        _MADE,
        f"# {card.id} {card.name}",
        f"**{prose(card.title)}.** {card.severity.capitalize()}; {_group(card.group)}.",
        "## Wrong",
        _fenced("python", excerpt(example.wrong, example.shown)),
        "## Right",
        _fenced("diff", difference(example)),
        "## What the doctor says",
        f"Of the whole file, [{example.path.name}]({where}):",
        _fenced("text", report),
        "## Why it matters",
        prose(card.why),
        "## What to do",
        prose(card.fix),
        "## How it is measured",
        *(prose(" ".join(each.split())) for each in re.split(r"\n\s*\n", card.doc) if each.strip()),
    ]
    if card.last_resort:
        parts += ["It is the last resort: with any other finding of its severity, that one is the cause."]
    if card.explains:
        parts += ["## What it explains"]
        parts += [f"Where these are mere consequences of it, they go beneath it: {_links(card.explains)}."]
    parts += ["## When it is not decided", _undecided(card)]
    return "\n\n".join(parts) + "\n"


def _undecided(card: Check) -> str:
    first = () if "failure" in card.needs else ("run",)
    needs = [*first, *sorted(card.needs - {*first})]
    many = [f"- {LACKING[need]}" for need in needs]
    return "\n".join(["The verdict is 'not applicable', never 'clear', where", "", *many])


def _links(names: frozenset[str]) -> str:
    ids = {card.name: card.id for card in checks()}
    return ", ".join(f"[{name}]({ids[name]}.md)" if name in ids else name for name in sorted(names))


def _group(group: str) -> str:
    return f"group [{group}, {GROUPS[group]}](README.md#{_anchor(group)})"


def _anchor(group: str) -> str:
    return f"{group} {GROUPS[group]}".lower().replace(" ", "-")


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def prose(text: str) -> str:
    """A card's words, their signs that Markdown would take for its own made plain."""
    return re.sub(r"([\\`*<|])", r"\\\1", text)


def index() -> str:
    """The page that lists all others."""
    parts = [_MADE, _INDEX.strip()]
    for group, words in GROUPS.items():
        of_group = [card for card in checks() if card.group == group]
        rows = [
            f"| [{card.id}]({card.id}.md) | {card.name} | {prose(card.title)} | {card.severity} |"
            for card in of_group
        ]
        if rows:
            parts += [f"## {group} {words}"]
            parts += [
                "\n".join(["| id | name | what is wrong | severity |", "| --- | --- | --- | --- |", *rows])
            ]
    return "\n\n".join(parts) + "\n"


_INDEX = """
# The doctor's checks

`headwise doctor my_model.py` asks a model each of these questions; `headwise explain HW101` prints one card.

**The doctor executes the file it is given**, as `python my_model.py` would, and calls the model, the loss and
the optimizer that the file makes. Give it only files that you would run.

## How to read a page

- **Wrong** is a part of a small model that runs and has this one mistake. **Right** is what changes. The
  whole file is linked: it is one of the doctor's own tests, and so is the file put right, in which nothing is
  found.
- **What the doctor says** is its report of that file: the place first, then what was measured, why it matters
  and what to do. The line named is where the mistake was written, which need not be where it shows.
- **Severity**: an error is certainly wrong, and measured; a warning is very probably harmful; a note is worth
  knowing. A page gives the usual one; a finding may be milder.

## How checks decide

- By intervention, not by reading code: a copy of the model is run, its operations are recorded, one thing is
  changed (one token, one row, what stands at the pads), and what moves is compared. Names mean nothing.
- In double precision where the model allows it, from fixed random numbers; what counts as no change is
  measured, or is rounding.
- A check comes to one of four verdicts: `found`; `clear`, with how much was tried; `not-applicable`, where
  what was given cannot decide; `could-not-run`, where the check itself failed, which hides no other.
- Causes come before consequences. One mistake often shows in several checks: the cause is reported, and what
  it explains is listed beneath it.
- Unusual but right designs (ALiBi, no positions in a causal decoder, multi-query attention, sliding windows,
  zero-initialised branches, tied weights and others) are no findings.

`--select HW1` and `--ignore causal-leak` choose checks by number, group or name, as do `select` and `ignore`
under `[tool.headwise]` in pyproject.toml. A comment `# headwise: ignore[HW101]` excuses its line.
"""


def chosen(words: Sequence[str]) -> list[Check]:
    """The checks meant by ids, groups (HW2) or names; all of them for no words."""
    every = checks()
    meant = [card for card in every if any(card.name == w or card.id.startswith(w) for w in words)]
    if words and not meant:
        raise SystemExit(f"--only takes ids, groups (HW2) or names of checks: got {' '.join(words)}")
    return meant if words else every


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or compare them; 1 where one differs, or a check does not find its specimen's bug."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="CHECK", help="ids, groups (HW2) or names")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 where a page would change"
    )
    parser.add_argument(
        "--keep-reports", action="store_true", help="examine nothing; take the pages' reports"
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # sums in the same order on every machine
    wanted: dict[Path, str | None] = {PAGES / "README.md": index()}
    failed: list[str] = []
    for card in chosen(options.only):
        try:
            example = read(specimen(card.id))
            report = kept(card) if options.keep_reports else said(card, example)
            wanted[PAGES / f"{card.id}.md"] = page(card, example, report)
        except LookupError as error:
            failed.append(str(error.args[0]))
    ids = {card.id for card in checks()}
    wanted |= {path: None for path in PAGES.glob("HW*.md") if path.stem not in ids}  # of checks that are gone
    for path, text in wanted.items():
        held = path.read_text(encoding="utf-8") if path.exists() else None
        if held == text:
            continue
        print(f"{'differs' if options.check else 'removed' if text is None else 'written'}: {path.name}")
        if options.check:
            failed.append(f"{path.name} is not what would be written; run python docs/make_checks.py")
        elif text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
