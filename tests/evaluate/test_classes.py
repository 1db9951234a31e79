"""Accuracy, F1 and the confusion matrix are scikit-learn's."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn import metrics

from headwise.evaluate.classes import ClassScores

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1)


@given(PAIRS)
@example([(0, 0)])
@example([(1, 2), (1, 2)])
def test_the_scores_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    labels, named = [a for a, _ in pairs], [b for _, b in pairs]
    found = ClassScores.of("abcd", labels, named)
    every = [0, 1, 2, 3]
    assert np.array_equal(found.confusion, metrics.confusion_matrix(labels, named, labels=every))
    assert np.isclose(found.accuracy, metrics.accuracy_score(labels, named))
    f1 = metrics.f1_score(labels, named, labels=every, average=None, zero_division=0)
    np.testing.assert_allclose(found.f1, f1)
    macro = metrics.f1_score(labels, named, average="macro", zero_division=0)
    assert np.isclose(found.macro_f1, macro)
    assert found.classes == ("a", "b", "c", "d")


def test_no_examples_are_worth_nothing() -> None:
    found = ClassScores.of("ab", [], [])
    assert (found.accuracy, found.macro_f1) == (0, 0)
