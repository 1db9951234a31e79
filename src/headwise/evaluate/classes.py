"""How well classes are named: accuracy, F1, the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ClassScores:
    """What named classes are worth.

    confusion[i, j]: how many of class i were taken for class j.
    """

    classes: tuple[str, ...]
    confusion: npt.NDArray[np.int64]

    @classmethod
    def of(cls, classes: Sequence[str], labels: Sequence[int], named: Sequence[int]) -> ClassScores:
        """Count; labels and named are places in `classes`."""
        confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
        np.add.at(confusion, (np.asarray(labels, dtype=np.int64), np.asarray(named, dtype=np.int64)), 1)
        return cls(tuple(classes), confusion)

    @property
    def accuracy(self) -> float:
        """Share of the examples that were named rightly."""
        return float(np.trace(self.confusion) / max(self.confusion.sum(), 1))

    @property
    def f1(self) -> npt.NDArray[np.float64]:
        """Of each class, 2 right / (2 right + missed + wrongly named); 0 for a class that never occurs."""
        right = np.diag(self.confusion).astype(np.float64)
        both = self.confusion.sum(0) + self.confusion.sum(1)
        return np.divide(2 * right, both, out=np.zeros_like(right), where=both > 0)

    @property
    def macro_f1(self) -> float:
        """The mean over the classes that occur or were named: small ones count as much as large ones."""
        occurs = self.confusion.sum(0) + self.confusion.sum(1) > 0
        return float(self.f1[occurs].mean()) if occurs.any() else 0.0
