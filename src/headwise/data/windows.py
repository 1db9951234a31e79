"""Windows of a long row of tokens: every token once an epoch, cut elsewhere each time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from torch import Tensor

from headwise.errors import DataError


class Windows:
    """Windows of `length` tokens and the one after, that learn to name each next token.

    Law: in an epoch no token is input twice, and but for the ends every token is input once.
    Errors: DataError for a text that is shorter than one window and the token after it.
    """

    def __init__(
        self,
        ids: npt.NDArray[np.uint16] | npt.NDArray[np.uint32],
        length: int,
        rows: int,
        seed: int,
        what: str = "text",
    ) -> None:
        if len(ids) < length + 1:
            raise DataError(
                f"the {what} must hold a window of {length} tokens and one more: got {len(ids)} tokens; "
                "give more text or lower data.text.window"
            )
        self._ids, self._length, self._rows, self._seed = ids, length, max(1, rows), seed

    def epoch(self, number: int) -> list[npt.NDArray[np.int64]]:
        """The starts of the windows of each batch; an epoch depends on (seed, number) alone."""
        generator = np.random.default_rng([self._seed, number])
        spare = len(self._ids) - 1
        # the borders move from epoch to epoch, so that no token is always the first of its window
        offset = int(generator.integers(0, min(self._length, spare - self._length + 1)))
        starts = generator.permutation(np.arange(offset, spare - self._length + 1, self._length))
        return np.split(starts, range(self._rows, len(starts), self._rows))

    def in_order(self, rows: int, most: int | None = None) -> list[npt.NDArray[np.int64]]:
        """All windows side by side from the first token on, in batches of `rows`; most: tokens to cover."""
        last = len(self._ids) - 1 - self._length
        if most is not None:
            last = min(last, max(0, most - self._length))
        starts = np.arange(0, last + 1, self._length)
        return np.split(starts, range(rows, len(starts), rows))

    def cut(self, starts: npt.NDArray[np.int64]) -> Int[Tensor, "B tokens"]:
        """The windows that begin there, each with the token after it."""
        places = starts[:, None] + np.arange(self._length + 1)
        return torch.as_tensor(self._ids[places].astype(np.int64))
