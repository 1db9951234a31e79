"""The table and the words about heads."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from headwise.see.heads_told import MARKS, summary, told
from headwise.see.stacks import Layer, Stack

T = 5
UNIFORM = torch.full((T, T), 1 / T)
DEAD = torch.eye(T)[[0] * T]
SHARP = torch.eye(T)[[0, 0, 1, 2, 3]]
ORDINARY = 0.6 * SHARP + 0.4 / T


def stack(*layers: list[Tensor], file: str = "model.py") -> Stack:
    keep = torch.ones(1, T, T, dtype=torch.bool)
    made = tuple(
        Layer(f"blocks.{number}", torch.stack(maps), keep, file, 10 + number if file else 0)
        for number, maps in enumerate(layers)
    )
    names = ("<s>", "the", "\u732b", "sat", ".")
    return Stack("self", made, names, names, ("read", "reading"))


def test_every_state_has_its_mark_and_its_words(golden: Callable[[str, str], None]) -> None:
    ordinary, odd = (
        stack([ORDINARY, UNIFORM], [DEAD, SHARP, torch.full((T, T), torch.nan)]),
        stack([UNIFORM], file=""),
    )
    golden("heads_told", told("Attention of \x1b[31mit", [ordinary, odd], ["a note that is one line"]))


def test_many_heads_take_several_rows_and_many_words_are_cut() -> None:
    lines = told("t", [stack([UNIFORM] * 20)]).splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("  head")] == [
        ["head", "1"],
        ["head", "13"],
    ]
    assert sum("is uniform" in line for line in lines) == 12 and "  and 8 more" in lines
    assert max(map(len, lines)) <= 110


def test_the_summary_counts_what_has_collapsed() -> None:
    lines = list(summary([stack([ORDINARY, DEAD], [SHARP, SHARP])], most=1))
    assert lines[0] == (
        "Self-attention: 2 x 2 heads, entropy 0 to 66 % of the most possible; collapsed: 1 dead, 2 one-hot"
    )
    assert lines[1].startswith("  layer 1 head 2 is dead: every query looks at the same token 1 (<s>)")
    assert lines[-1] == "  and 2 more"
    assert list(summary([stack([ORDINARY])])) == [
        "Self-attention: 1 x 1 heads, entropy 66 to 66 % of the most possible; collapsed: none"
    ]


def test_the_summary_of_nan_says_so() -> None:
    nan = torch.full((T, T), torch.nan)
    assert "entropy 66 to 66 % of the most" in next(summary([stack([nan, ORDINARY, nan])]))
    assert "entropy NaN;" in next(summary([stack([nan])]))


def test_marks_differ() -> None:
    assert len(set(MARKS.values())) == 4 and all(len(mark) == 1 for mark in MARKS.values())
