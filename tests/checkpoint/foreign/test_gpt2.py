"""GPT-2: the same numbers as transformers computes, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoint.foreign.agreement import (
    TWINS,
    Case,
    cases,
    check_agreement,
    check_padding_twin,
    check_saving,
    check_twin,
    check_writing_on,
)

CASES = cases("gpt2")
FIRST = [next(case for case in CASES if case.layout == name) for name in ("gpt2",)]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


@every_case
def test_it_computes_what_transformers_computes(case: Case, tmp_path: Path) -> None:
    check_agreement(case, tmp_path)


@every_case
def test_what_is_loaded_can_be_saved_again(case: Case, tmp_path: Path) -> None:
    check_saving(case, tmp_path)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("case", FIRST, ids=str)
def test_a_wrong_twin_is_told_apart(case: Case, twin: str, tmp_path: Path) -> None:
    check_twin(case, twin, tmp_path)


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_padding_that_is_looked_at_is_told_apart(case: Case, tmp_path: Path) -> None:
    check_padding_twin(case, tmp_path)


@pytest.mark.parametrize(
    "case", [c for c in CASES if "For" in c.architecture or "Head" in c.architecture], ids=str
)
def test_it_writes_the_same_continuations(case: Case, tmp_path: Path) -> None:
    check_writing_on(case, tmp_path)
