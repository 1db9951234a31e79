"""Rows of different lengths to one tensor, and the marks that frame them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor


@runtime_checkable
class Marks(Protocol):
    """The ids of the special tokens; a Tokenizer is one."""

    @property
    def pad_id(self) -> int:
        """Fills rows up to the longest."""
        ...

    @property
    def bos_id(self) -> int:
        """Begins every target."""
        ...

    @property
    def eos_id(self) -> int:
        """Ends every source and every target."""
        ...


def pad_rows(rows: Sequence[Sequence[int]], pad_id: int) -> Int[Tensor, "B T"]:
    """Fill every row up to the longest with pad_id, on the right."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[pad_id] * (longest - len(row))] for row in rows], dtype=torch.long)


def pad_sources(rows: Sequence[Sequence[int]], marks: Marks) -> Int[Tensor, "B Ts"]:
    """The encoder's input: each row closed by the end mark, then padded (in training and decoding alike)."""
    return pad_rows([[*row, marks.eos_id] for row in rows], marks.pad_id)
