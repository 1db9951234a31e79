"""Reading where a constructor assigns a child, and whose a file is."""

from __future__ import annotations

import ast
import dataclasses
import linecache
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import headwise.doctor.check
from headwise.doctor.check import Place
from headwise.doctor.written import assigned_at, formula_of, whose


class Part(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.deep = nn.Linear(2, 2)  # deep


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = Part()  # plain
        self.left, (self.right, *self.rest) = Part(), (Part(), 1)  # left right rest
        self.noted: nn.Module = Part()  # noted
        self.add_module("added", Part())  # added
        setattr(self, "set", Part())  # set # noqa: B010
        self.register_buffer("table", torch.zeros(2))  # table
        self.parts = nn.ModuleList(Part() for _ in range(2))  # parts
        for name in ("by", "loop"):
            self.add_module(name, Part())
        self.late()

    def late(this) -> None:
        this.later = Part()  # later


class Heir(Whole):
    pass


class Boxed(nn.ModuleDict):
    pass


def line_of(name: str) -> int:
    for number, line in enumerate(linecache.getlines(__file__), 1):
        if name in line.partition("  # ")[2].split():
            return number
    raise AssertionError(name)


@pytest.mark.parametrize(
    "name", ["plain", "left", "right", "rest", "noted", "added", "set", "table", "later"]
)
@pytest.mark.parametrize("kind", [Whole, Heir])
def test_an_assignment_is_found_in_every_spelling(name: str, kind: type[nn.Module]) -> None:
    place = assigned_at(kind(), name)
    assert place is not None and (place.file, place.line) == (__file__, line_of(name))
    assert place.function == ("Whole.late" if name == "later" else "Whole.__init__")


def test_what_a_container_holds_is_assigned_where_the_container_is() -> None:
    for path, name in (("parts.0", "parts"), ("parts.1.deep", "deep"), ("plain.deep", "deep")):
        place = assigned_at(Whole(), path)
        assert place is not None and place.line == line_of(name)


def test_what_the_source_does_not_say_is_not_guessed() -> None:
    assert assigned_at(Whole(), "loop") is None
    assert assigned_at(Whole(), "nothing") is None
    assert assigned_at(Whole(), "nothing.at.all") is None
    assert assigned_at(nn.Linear(2, 2), "weight") is None  # torch's source is not the user's
    assert assigned_at(nn.Sequential(nn.Linear(2, 2)), "0") is None


def test_a_class_without_source_is_no_crash() -> None:
    made = type("Made", (nn.Module,), {})()
    assert assigned_at(made, "x") is None


@dataclasses.dataclass
class Written:
    number: int = 0


def test_whose_a_file_is() -> None:
    assert whose(__file__) == "user"
    assert whose(nn.Module.forward.__code__.co_filename) == "torch"
    assert whose(os.path.dirname(pytest.__file__) + os.sep + "x.py") == "library"
    assert whose(ast.__file__) == "python"
    assert whose(headwise.doctor.check.__file__) == "doctor"
    assert whose(headwise.__file__) in ("user", "library")
    assert whose(Written.__init__.__code__.co_filename) == "python"  # what dataclasses wrote
    assert whose("<frozen importlib._bootstrap>") == "python"
    assert whose("<ipython-input-3-1234>") == "user"


def test_a_rate_leads_to_its_formula(tmp_path: Path) -> None:
    file = tmp_path / "schedule.py"
    file.write_text(
        "class Noam:\n"
        "    def rate(self, n):\n"
        "        return n**-0.5\n"
        "    def step(self):\n"
        "        group['lr'] = self.rate(3)\n"
        "    def other(self):\n"
        "        rate = 2.0 * self.n\n"
        "        group['lr'] = rate\n"
        "    def plain(self):\n"
        "        group['lr'] = 0.1\n",
        encoding="utf-8",
    )
    assert formula_of(Place(str(file), 5)) == Place(str(file), 3, "Noam.rate")
    assert formula_of(Place(str(file), 8)) == Place(str(file), 7, "Noam.other")
    assert formula_of(Place(str(file), 10)) is None
    assert formula_of(Place(str(file), 1)) is None
