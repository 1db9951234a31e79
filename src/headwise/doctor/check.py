"""A check: one question to a model, the card that explains it, and what an answer may be.

A check is a generator in a file of its own under `checks/`. It asks the probe, and yields `Found` for a
mistake it has measured and `Tried` for how much it has tried; it raises `NotApplicable` where what the user
gave cannot decide. It prints nothing. The decorator turns its function's name into the check's name
(`causal_leak` is `causal-leak`) and adds it to the registry; a number taken twice is refused at import.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headwise.doctor.probe import Probe

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

GROUPS: dict[str, str] = {
    "HW0": "it does not run",
    "HW1": "masks",
    "HW2": "attention",
    "HW3": "positions",
    "HW4": "blocks",
    "HW5": "outputs and targets",
    "HW6": "weights",
    "HW7": "training",
    "HW8": "decoding",
    "HW9": "numerics",
}


@dataclass(frozen=True)
class Place:
    """A line of source: `function` is its qualified name ("" at module level), `file` as Python names it."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True)
class Picture:
    """What the HTML report draws beside a finding.

    kind "matrix": `values` are rows, nan is a cell that is masked; kind "curve": each row of `values` is a
    line, named by `labels`. `caption` says what to see.
    """

    kind: Literal["matrix", "curve"]
    title: str
    values: tuple[tuple[float, ...], ...]
    x_label: str = ""
    y_label: str = ""
    labels: tuple[str, ...] = ()
    caption: str = ""


@dataclass(frozen=True)
class Found:
    """A mistake that a check has measured: the evidence in one sentence, and the line where it was written.

    at: None where no line of the user's can be named. module: its path in the model, "" for the model itself.
    related: other lines that take part, each with its role, most telling first (three are kept).
    severity, why and fix: only where they differ from the card's.
    """

    evidence: str
    at: Place | None = None
    module: str = ""
    related: tuple[tuple[Place, str], ...] = ()
    severity: Severity | None = None
    why: str = ""
    fix: str = ""
    picture: Picture | None = None


@dataclass(frozen=True)
class Tried:
    """How much a check has tried, for the verdict 'clear': 'changed 6 tokens of 3 rows'."""

    what: str


class NotApplicable(Exception):
    """What the user gave cannot decide this question; the message says what is missing."""


@dataclass(frozen=True)
class Related:
    """Another line that takes part in a finding."""

    file: str
    line: int
    role: str


@dataclass(frozen=True)
class Finding:
    """One mistake, as every form of the report shows it; the attributes are the JSON's keys."""

    id: str
    name: str
    severity: Severity
    module: str
    file: str
    line: int
    related: tuple[Related, ...]
    evidence: str
    why: str
    fix: str
    explains: tuple[str, ...] = ()
    title: str = ""
    picture: Picture | None = field(default=None, compare=False)


Verdict = Literal["found", "clear", "not-applicable", "could-not-run"]


@dataclass(frozen=True)
class Verdicted:
    """What became of one check, and how much it tried (or why it could not decide)."""

    verdict: Verdict
    tried: str


Body = Callable[["Probe"], Iterator[Found | Tried]]


@dataclass(frozen=True)
class Check:
    """The card of a check and its question.

    needs: facts of the probe without which it is not applicable (see Probe.lacks).
    explains: names of checks whose findings are consequences of this one, and go beneath it.
    last_resort: its finding says only that something is wrong: any other of its severity explains it.
    quick: belongs to the examination before training (`headwise train`), which takes a few seconds.
    """

    id: str
    name: str
    title: str
    why: str
    fix: str
    severity: Severity
    needs: frozenset[str]
    explains: frozenset[str]
    quick: bool
    last_resort: bool
    ask: Body
    doc: str

    @property
    def group(self) -> str:
        return self.id[:3]


_registry: dict[str, Check] = {}


def check(
    *,
    id: str,
    title: str,
    why: str,
    fix: str,
    severity: Severity = "error",
    needs: set[str] | None = None,
    explains: set[str] | None = None,
    quick: bool = False,
    last_resort: bool = False,
) -> Callable[[Body], Body]:
    """Register a generator function as a check; its name is the check's name, its number is checked.

    Raises ValueError for a number that is malformed or taken (naming the holder), at import.
    """

    def register(body: Body) -> Body:
        name = body.__name__.replace("_", "-")
        if not re.fullmatch(r"HW\d{3}", id) or id[:3] not in GROUPS:
            raise ValueError(f"a check's id is HW and three digits of a known group: got {id} for {name}")
        for held in _registry.values():
            if held.id == id or held.name == name:
                raise ValueError(f"{id} {name} is taken by {held.id} {held.name}; choose another")
        _registry[id] = Check(
            id=id,
            name=name,
            title=title,
            why=why,
            fix=fix,
            severity=severity,
            needs=frozenset(needs or ()),
            explains=frozenset(explains or ()),
            quick=quick,
            last_resort=last_resort,
            ask=body,
            doc=(importlib.import_module(body.__module__).__doc__ or "").strip(),
        )
        return body

    return register


def checks() -> list[Check]:
    """Every check, by number. Imports each module beside `checks/__init__.py`: there is no list to edit."""
    from headwise.doctor import checks as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return sorted(_registry.values(), key=lambda each: each.id)
