"""A check registers once, under its function's name; a number or a name that is taken names its holder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwise.doctor import check as module
from headwise.doctor.check import GROUPS, Check, Found, NotApplicable, Place, Tried, check, checks


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Check]:
    """An empty one for the length of a test."""
    held: dict[str, Check] = {}
    monkeypatch.setattr(module, "_registry", held)
    return held


CARD: dict[str, Any] = {"title": "It is wrong", "why": "It hurts.", "fix": "Mend it."}


def asks_nothing(probe: Any) -> Iterator[Found | Tried]:
    yield Tried("nothing")


def test_the_name_is_the_functions(registry: dict[str, Check]) -> None:
    assert check(id="HW150", **CARD)(asks_nothing) is asks_nothing
    held = registry["HW150"]
    assert (held.name, held.id, held.group) == ("asks-nothing", "HW150", "HW1")
    assert (held.severity, held.needs, held.explains) == ("error", frozenset(), frozenset())
    assert not held.quick and not held.last_resort
    assert held.ask is asks_nothing and held.doc == (__doc__ or "").strip()


def test_a_number_that_is_taken_names_its_holder(registry: dict[str, Check]) -> None:
    check(id="HW150", **CARD)(asks_nothing)

    def another(probe: Any) -> Iterator[Found | Tried]:
        yield Tried("nothing")

    with pytest.raises(ValueError, match="HW150 another is taken by HW150 asks-nothing"):
        check(id="HW150", **CARD)(another)
    assert list(registry) == ["HW150"]


def test_so_does_a_name(registry: dict[str, Check]) -> None:
    check(id="HW150", **CARD)(asks_nothing)
    with pytest.raises(ValueError, match="HW151 asks-nothing is taken by HW150 asks-nothing"):
        check(id="HW151", **CARD)(asks_nothing)


@pytest.mark.parametrize("number", ["HW1", "HW1000", "XX101", "hw101", "HW10a", ""])
def test_a_number_has_a_form(number: str, registry: dict[str, Check]) -> None:
    with pytest.raises(ValueError, match="HW and three digits of a known group"):
        check(id=number, **CARD)(asks_nothing)
    assert not registry


def test_the_taken_numbers_are_those_of_the_files() -> None:
    held = checks()[0]
    with pytest.raises(ValueError, match=f"is taken by {held.id} {held.name}"):
        check(id=held.id, **CARD)(asks_nothing)
    assert held in checks()


def test_checks_come_by_number() -> None:
    numbers = [each.id for each in checks()]
    assert numbers == sorted(numbers) and len(set(numbers)) == len(numbers)
    assert {each.group for each in checks()} <= GROUPS.keys()


def test_findings_are_data() -> None:
    one = Found("saw it", at=Place("a.py", 3, "f"))
    assert one == Found("saw it", at=Place("a.py", 3, "f")) and one != Found("saw it")
    assert str(NotApplicable("no targets were given")) == "no targets were given"
