from __future__ import annotations

import pytest

from headwise.data.pairs import Pairs
from headwise.errors import DataError


def test_length_is_the_number_of_pairs() -> None:
    assert len(Pairs(["one", "two"], ["eins", "zwei"])) == 2
    assert len(Pairs([], [])) == 0


@pytest.mark.parametrize(("sources", "targets"), [(2, 1), (0, 3)])
def test_a_source_without_its_own_target_is_refused(sources: int, targets: int) -> None:
    with pytest.raises(DataError, match=f"got {sources} sources and {targets} targets; line n"):
        Pairs(["a"] * sources, ["b"] * targets)
