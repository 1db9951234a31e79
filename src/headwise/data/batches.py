"""Batches of about equal token counts and little padding, in an order that a seed decides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headwise.errors import ConfigError, DataError

# Tokens by which the shorter sides of neighbours may be out of order. Measured on Multi30k with
# batches of 4,096: 5 % padding, and two pairs that share a batch share one again in 29 % of epochs
# (1.0: 4 % and 38 %; 3.0: 6 % and 24 %).
_NOISE = 2.0


class Batches:
    """The pairs of a corpus cut into batches, anew for each epoch.

    n * max(longest source, longest target) <= batch_tokens        for every batch of n pairs

    source_lengths, target_lengths: tokens of each pair, counted as the model will see them.
    batch_tokens: most tokens on the longer side of a batch, padding included.
    seed: of the order; an epoch depends on (seed, number) alone, so that a run can resume anywhere.

    Errors: ConfigError for batch_tokens below 1; DataError for no pairs, unequal counts, or a pair
    that is longer than batch_tokens by itself.
    Law: every index comes exactly once in each epoch.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | npt.NDArray[np.int64],
        target_lengths: Sequence[int] | npt.NDArray[np.int64],
        batch_tokens: int,
        seed: int,
    ) -> None:
        self._source = np.asarray(source_lengths, dtype=np.int64)
        self._target = np.asarray(target_lengths, dtype=np.int64)
        self._batch_tokens = batch_tokens
        self._seed = seed
        if batch_tokens < 1:
            raise ConfigError(f"batch_tokens must be at least 1: got {batch_tokens}; 4096 is usual")
        if self._source.shape != self._target.shape:
            raise DataError(
                f"each source needs its target: got {self._source.size} source lengths "
                f"and {self._target.size} target lengths; give both for each pair"
            )
        if self._source.size == 0:
            raise DataError("batches need at least one pair: got none; give more text or raise max_length")
        self._longer = np.maximum(self._source, self._target)
        longest = int(self._longer.argmax())
        if self._longer[longest] > batch_tokens:
            raise DataError(
                f"every pair must fit a batch: pair {longest + 1} has {self._source[longest]} source and "
                f"{self._target[longest]} target tokens, batch_tokens={batch_tokens}; "
                f"raise batch_tokens to {self._longer[longest]} or lower max_length"
            )

    def epoch(self, number: int) -> list[npt.NDArray[np.int64]]:
        """The batches of epoch `number`, each an array of indices, in training order."""
        generator = np.random.default_rng([self._seed, number])
        order = self._order(generator)
        # a first batch of random size moves every later cut, so that no border stays where it was
        batches = self._cut(order, int(generator.integers(1, self._batch_tokens, endpoint=True)))
        return [batches[place] for place in generator.permutation(len(batches))]

    def padding_share(self, batches: Sequence[npt.NDArray[np.int64]]) -> float:
        """The share of padding among all positions of the batches, both sides together: 0 to below 1."""
        real = sum(int(self._source[batch].sum() + self._target[batch].sum()) for batch in batches)
        held = sum(
            len(batch) * int(self._source[batch].max() + self._target[batch].max()) for batch in batches
        )
        return 1 - real / held if held else 0.0

    def _order(self, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        """Neighbours alike on both sides: by the longer side, then by how much the source is longer."""
        surplus = self._source - self._target + generator.uniform(-_NOISE, _NOISE, self._source.size)
        # Within one length the surplus rises, within the next it falls: where the two meet they are
        # alike, and a batch across the border needs no more padding than one inside.
        falls = (self._longer + generator.integers(2)) % 2 == 0
        return np.lexsort((np.where(falls, -surplus, surplus), self._longer))

    def _cut(self, order: npt.NDArray[np.int64], first_tokens: int) -> list[npt.NDArray[np.int64]]:
        batches: list[npt.NDArray[np.int64]] = []
        start, room = 0, first_tokens
        # the order is by length, so the newest pair is the longest of its batch
        for place, length in enumerate(self._longer[order].tolist()):
            if place > start and length * (place - start + 1) > room:
                batches.append(order[start:place])
                start, room = place, self._batch_tokens
        batches.append(order[start:])
        return batches
