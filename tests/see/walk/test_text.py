"""The text form: within its width whatever is in it, numbers in few characters, nothing hidden."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.sample import TEXT
from headwise.doctor.places import columns
from headwise.see.walk.steps import Group, Part, Step
from headwise.see.walk.text import counted, shaped, sized, sums, title
from headwise.see.walk.walk import Failed, Walk, trace
from see.walk.walk_models import Block, Llama, ids, numbers

ESCAPES = re.compile("\x1b\\[[0-9;]*m")


def sample(text: str) -> Walk:
    """A walk in which every text is this one."""
    part = Part("aten_op", (2, 3), ("B", "T"), 3, 4, text, 3)
    one = Step(
        text, "other", text, (2, 10, 16), ("B", "T", text), 3, "float32", (10, 2, 16), 5, 6, 7, text, 8, text,
        text, (part,),
    )  # fmt: skip
    group = Group(
        "block", "block", 2, (text, "b"), (one, Group("attention", "attention", 1, (text,), (one,)))
    )
    failed = Failed(text, 3, text, text, text, (text, text))
    return Walk("1", text, {"B": 2, "Dh": 4}, (one, group, one), 9, 10, 11, 12, text, failed, (text,))


@settings(max_examples=60)
@given(TEXT, st.integers(40, 160), st.booleans())
def test_no_line_is_wider_than_asked_and_nothing_is_hidden_in_it(text: str, width: int, all: bool) -> None:
    told = sample(text).to_text(width=width, all=all)
    assert all_fit(told, width)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ufeff]", told)


def all_fit(text: str, width: int) -> bool:
    return all(columns(line) <= width for line in text.splitlines())


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_real_walks_fit_and_lose_the_least_important_columns_first(width: int) -> None:
    walk = trace(Llama(), ids())
    told = walk.to_text(width=width, all=True)
    assert all_fit(told, width)
    head = next(line for line in told.splitlines() if line.startswith("step"))
    assert ("params" in head) == (width >= 100) and ("code" in head) == (width >= 140)
    assert ("axes" in head) == (width >= 60) and "shape" in head


def test_colour_is_nothing_but_codes() -> None:
    walk = sample("plain")
    plain, coloured = (walk.to_text(color=color, width=90, all=True) for color in (False, True))
    assert plain != coloured and ESCAPES.sub("", coloured) == plain


@pytest.mark.parametrize(
    ("value", "count", "size"),
    [
        (0, "", ""), (1, "1", "1B"), (999, "999", "999B"), (1000, "1k", "1000B"), (1024, "1.02k", "1K"),
        (999_499, "999k", "976K"), (999_500, "1M", "976K"), (10**9, "1G", "954M"),
        (5 * 10**15, "5e+03T", "4.55e+03T"),
    ],
)  # fmt: skip
def test_numbers_take_few_characters(value: int, count: str, size: str) -> None:
    assert (counted(value), sized(value)) == (count, size)


def test_a_group_is_told_by_its_ends_and_adds_up_what_is_in_it_once() -> None:
    walk = sample("x")
    group = walk.rows[1]
    assert isinstance(group, Group)
    assert title(group) == "block x 2  x .. b" and sums(group) == (10, 12, 14)
    assert title(replace(group, times=1, modules=("",))) == "block"
    assert sums(replace(group, rows=(group, group))) == (40, 48, 56)
    assert shaped(walk.rows[0]) == "3 x [2, 10, 16]"  # pyright: ignore


def test_views_are_folded_unless_asked_for() -> None:
    walk = trace(Block(), numbers(2, 10, 16))
    assert ". transpose" not in walk.to_text() and ". transpose" in walk.to_text(all=True)
