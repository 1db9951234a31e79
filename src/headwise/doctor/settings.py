"""What the user decides: which checks run, what counts, which lines are excused.

From the command line, from [tool.headwise] of the nearest pyproject.toml, and from comments such as
`# headwise: ignore[HW101]`. No torch here: a mistake is told before it is loaded.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import io
import linecache
import os
import re
import tokenize
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from headwise.doctor.check import GROUPS, SEVERITIES
from headwise.doctor.subject import KINDS
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.doctor.report import Report

FORMATS = ("text", "json", "html", "sarif", "junit")
_COMMENT = re.compile(r"#\s*headwise:\s*ignore\b(?:\s*\[([^\]]*)\])?", re.IGNORECASE)
_ID = re.compile(r"""^\s*id="(HW\d{3})",?\s*$""", re.MULTILINE)
_CHOICES: dict[str, tuple[str, ...]] = {"fail-on": SEVERITIES, "kind": KINDS, "format": FORMATS}
_KEYS = ("select", "ignore", "fail-on", "kind", "pad-id", "format", "device")


@runtime_checkable
class Named(Protocol):
    """What has an id and a name: a check, a finding."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...


@runtime_checkable
class Placed(Named, Protocol):
    """What `suppressed` reads of a finding."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...


@dataclass(frozen=True)
class Selection:
    """Which checks run: ids ('HW101'), beginnings of them ('HW1') or names ('causal-leak'), in any case.

    select: only these, all where it is empty; ignore: never these.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def __call__(self, check: Named) -> bool:
        """Whether the check is to run."""
        chosen = not self.select or any(means(word, check) for word in self.select)
        return chosen and not any(means(word, check) for word in self.ignore)


@dataclass(frozen=True)
class FileSettings:
    """[tool.headwise] of one pyproject.toml; `values` holds the keys that it gives, as written there."""

    path: Path | None = None
    values: dict[str, Any] = field(default_factory=dict[str, Any])


def chooser(select: str | Iterable[str] = (), ignore: str | Iterable[str] = ()) -> Selection:
    """The checks that these words choose: in a list, or in one text with commas.

    Errors: ConfigError for a word that means no check.
    """
    selection = Selection(words(select), words(ignore))
    check_words(selection.select, "select")
    check_words(selection.ignore, "ignore")
    return selection


def words(text: str | Iterable[str]) -> tuple[str, ...]:
    """'HW1, causal-leak' as its words; an option takes a list with commas, a TOML file may take an array."""
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(part.strip() for part in parts if part.strip())


def means(word: str, check: Named) -> bool:
    """Whether a word is the check's id, the beginning of it, or its name."""
    lower = word.lower()
    return lower == check.name or (bool(re.fullmatch(r"hw\d*", lower)) and check.id.lower().startswith(lower))


def check_words(given: Iterable[str], where: str) -> None:
    """Refuse words that mean no check. where: how the user gave them, such as '--select'.

    Errors: ConfigError with what is near.
    """
    known = known_checks()
    for word in given:
        if not any(means(word, _Card(id, name)) for id, name in known.items()):
            everything = [*known, *known.values(), *GROUPS]
            digits = word.upper().translate(str.maketrans("OIL", "011"))  # letters for digits
            tried = digits if digits.startswith("HW") else word.lower()
            close = difflib.get_close_matches(tried, everything, n=1)
            hint = f"did you mean {close[0]}?" if close else "headwise explain lists them"
            raise ConfigError(f"{where}: no check is called {word!r}; {hint}")


def check_some(given: Iterable[str], where: str, written: object) -> None:
    """Refuse a selection of nothing: an empty one would run every check, which nobody asked for so.

    Errors: ConfigError.
    """
    if not tuple(given):
        raise ConfigError(
            f"{where} must name a check: got {written!r}; HW101, HW1 or causal-leak would do, "
            "and without it every check runs"
        )


@functools.cache
def known_checks() -> dict[str, str]:
    """The id of every check and its name, read off their files: importing them would load torch."""
    found: dict[str, str] = {}
    for path in sorted((Path(__file__).parent / "checks").glob("*.py")):
        for id in _ID.findall(path.read_text(encoding="utf-8"))[:1]:
            found[id] = path.stem.replace("_", "-")
    return dict(sorted(found.items()))


def read_settings(target: str) -> FileSettings:
    """The settings of the nearest pyproject.toml above the target that has any.

    Errors: ConfigError naming the file for an unknown key, a value of another type, or broken TOML.
    """
    without_name = target.rpartition(":")[0]
    path = Path(without_name if os.path.exists(without_name) and not os.path.exists(target) else target)
    folder = path.absolute() if path.is_dir() else path.absolute().parent
    for above in (folder, *folder.parents):
        file = above / "pyproject.toml"
        table = _table(file) if file.is_file() else None
        if table is not None:
            return FileSettings(file, _checked(table, file))
    return FileSettings()


def suppressed(finding: Placed) -> bool:
    """Whether a comment excuses the finding: on its line, or on the first line of the statement it is in.

    `# headwise: ignore[HW101, causal-leak]`; without brackets every finding there.
    """
    if not finding.file:
        return False
    comments, statements = _read(finding.file, _state_of(finding.file))
    lines = {finding.line, _first_line(statements, finding.line)}
    return any(
        not excused or any(means(word, finding) for word in excused)
        for line in lines
        if (excused := comments.get(line)) is not None
    )


def without_suppressed(report: Report) -> Report:
    """The report without the findings that comments excuse, and a note of how many those are."""
    kept = tuple(finding for finding in report.findings if not suppressed(finding))
    excused = len(report.findings) - len(kept)
    if not excused:
        return report
    what = "1 finding is" if excused == 1 else f"{excused} findings are"
    note = f"{what} excused by comments '# headwise: ignore'"
    return dataclasses.replace(report, findings=kept, notes=(*report.notes, note))


@dataclass(frozen=True)
class _Card:
    id: str
    name: str


def _table(file: Path) -> dict[str, Any] | None:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    tool: object = content.get("tool")
    table: object = cast("dict[str, object]", tool).get("headwise") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"{file}: tool.headwise must be a table: got {table!r}")
    return cast("dict[str, Any] | None", table)


def _checked(table: Mapping[str, Any], file: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in table.items():
        where = f"{file}: [tool.headwise] {key}"
        if key not in _KEYS:
            close = difflib.get_close_matches(key.replace("_", "-"), _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_KEYS)}"
            raise ConfigError(f"{file}: [tool.headwise] has the unknown key {key}; {hint}")
        if key in ("select", "ignore"):
            is_list = isinstance(value, list) and all(isinstance(w, str) for w in cast("list[object]", value))
            if not (isinstance(value, str) or is_list):
                raise ConfigError(f"{where} must be a list of ids and names: got {value!r}")
            values[key] = words(cast("str | list[str]", value))
            check_words(values[key], where)
            if key == "select":
                check_some(values[key], where, cast("object", value))
            continue
        choices = _CHOICES.get(key)
        if choices and value not in choices:
            raise ConfigError(f"{where} must be one of {', '.join(choices)}: got {value!r}")
        wanted = int if key == "pad-id" else str
        if type(value) is not wanted:
            said = "a whole number" if wanted is int else "text"
            raise ConfigError(f"{where} must be {said}: got {value!r}")
        values[key] = value
    return values


def _state_of(file: str) -> object:
    """Changes when the file does, so that what was read of it is read again."""
    try:
        state = os.stat(file)
    except (OSError, ValueError):
        return len(linecache.getlines(file))  # a notebook's cell
    return state.st_mtime_ns, state.st_size


@functools.lru_cache(maxsize=64)
def _read(file: str, _state: object) -> tuple[dict[int, tuple[str, ...]], list[tuple[int, int]]]:
    """The excusing comments by line, and the first and last line of every statement (headers of blocks)."""
    linecache.checkcache(file)
    source = "".join(linecache.getlines(file))
    comments: dict[int, tuple[str, ...]] = {}
    statements: list[tuple[int, int]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if match:
                comments[token.start[0]] = words(match[1] or "")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.stmt):
                body = cast("list[ast.stmt]", getattr(node, "body", []))
                last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
                statements.append((node.lineno, max(last, node.lineno)))
    except (SyntaxError, tokenize.TokenError, ValueError):
        pass  # comments before the fault still count
    return comments, statements


def _first_line(statements: Iterable[tuple[int, int]], line: int) -> int:
    """The first line of the innermost statement about a line."""
    return max((first for first, last in statements if first <= line <= last), default=line)
