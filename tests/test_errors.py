"""The tree in the docstring is the tree in the code."""

from __future__ import annotations

import inspect
import re

import pytest

from headwise import errors
from headwise.errors import HeadwiseError, MissingExtra

ALSO: dict[str, type[Exception] | None] = {
    "ConfigError": ValueError,
    "DataError": ValueError,
    "RunError": ValueError,
    "TrainingError": RuntimeError,
    "StorageError": OSError,
    "MissingExtra": ImportError,
    "Stopped": None,
}
CLASSES = {
    name: value
    for name, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, HeadwiseError) and value is not HeadwiseError
}


def test_the_docstring_draws_every_error_with_its_second_parent() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^[|`]-- (\w+)  +\w.*?(?:\(also (\w+)\))?$", errors.__doc__, re.MULTILINE)
    assert dict(drawn) == {name: parent.__name__ if parent else "" for name, parent in ALSO.items()}
    assert sorted(name for name, _ in drawn) == sorted(CLASSES)


@pytest.mark.parametrize("name", ALSO)
def test_each_is_caught_as_ours_and_as_pythons(name: str) -> None:
    error = CLASSES[name]
    assert error.__bases__ == tuple(filter(None, (HeadwiseError, ALSO[name])))
    assert error.__doc__ and error.__doc__.count("\n") == 0
    raised = error("package", "purpose", "extra") if error is MissingExtra else error("what, got, way out")
    assert len(str(raised).splitlines()) == 1


def test_a_missing_extra_says_how_to_get_it() -> None:
    assert str(MissingExtra("matplotlib", "drawing attention maps", "plot")) == (
        "drawing attention maps needs matplotlib, which is not installed: pip install 'headwise[plot]'"
    )
