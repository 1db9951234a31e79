"""A subject is data: what is not told is None, and it needs no torch to be written down."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from headwise.doctor.subject import KINDS, Subject


def test_only_model_and_inputs_are_asked_for() -> None:
    subject = Subject(model=len, inputs=())
    untold = {field.name: getattr(subject, field.name) for field in dataclasses.fields(subject)}
    assert untold.pop("model") is len and untold.pop("inputs") == ()
    assert untold.pop("name") == "" and untold.pop("notes") == ()
    assert set(untold.values()) == {None}


def test_a_subject_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Subject(len, ()).kind = "decoder"  # type: ignore[misc]


def test_kinds_are_the_three_of_the_paper_and_its_halves() -> None:
    assert KINDS == ("decoder", "encoder", "encoder-decoder")


@pytest.mark.parametrize("module", ["headwise.doctor.subject", "headwise.doctor.check"])
def test_importing_it_needs_no_torch(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'torch', 'numpy', 'jaxtyping'}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
