"""From token ids to the three tensors of a training step: the one place where targets shift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from headwise.data.batches import Batches
from headwise.data.padding import Marks, pad_rows, pad_sources


@dataclass(frozen=True)
class Batch:
    """What a step of training needs.

    decoder_input:  <bos> a b c
    labels:         a     b c <eos>        position t of the input learns position t of the labels
    """

    source: Int[Tensor, "B Ts"]
    decoder_input: Int[Tensor, "B Tt"]
    labels: Int[Tensor, "B Tt"]


def make_batch(source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], marks: Marks) -> Batch:
    """Pad rows of token ids (without marks) and shift the targets by one."""
    return Batch(
        source=pad_sources(source, marks),
        decoder_input=pad_rows([[marks.bos_id, *row] for row in target], marks.pad_id),
        labels=pad_rows([[*row, marks.eos_id] for row in target], marks.pad_id),
    )


@dataclass(frozen=True)
class Encoded:
    """Aligned rows of token ids (without marks), and how they are batched."""

    source: list[list[int]]
    target: list[list[int]]
    batches: Batches

    def batch(self, rows: Sequence[int], marks: Marks) -> Batch:
        """These pairs as tensors."""
        return make_batch([self.source[i] for i in rows], [self.target[i] for i in rows], marks)
