"""What decoding need not compute twice: the keys and values of positions that are already written."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Keys and values of the encoder's output, as one block's cross-attention sees them.
Memory = tuple[Float[Tensor, "B Hk Ts Dh"], Float[Tensor, "B Hk Ts Dh"]]


class KeyValues:
    """Keys and values of one self-attention, growing along the position axis.

    Room is doubled when it runs out, so that n steps copy O(n) positions, not O(n^2).
    """

    def __init__(self) -> None:
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(
        self, k: Float[Tensor, "B Hk T Dh"], v: Float[Tensor, "B Hk T Dh"]
    ) -> tuple[Float[Tensor, "B Hk Tk Dh"], Float[Tensor, "B Hk Tk Dh"]]:
        """Add T positions and return all of them so far."""
        start, self.length = self.length, self.length + k.size(2)
        if self._keys is None or self._values is None or self._keys.size(2) < self.length:
            self._keys, self._values = self._grown(self._keys, k), self._grown(self._values, v)
        self._keys[:, :, start : self.length] = k
        self._values[:, :, start : self.length] = v
        return self._keys[:, :, : self.length], self._values[:, :, : self.length]

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows of the batch, in this order; a row may be taken more than once."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[rows], self._values[rows]

    def _grown(self, old: Tensor | None, new: Tensor) -> Tensor:
        room = max(16, 2 * self.length)
        grown = new.new_empty((new.size(0), new.size(1), room, new.size(3)))
        if old is not None:
            grown[:, :, : old.size(2)] = old
        return grown


@dataclass
class TextCache:
    """Everything a decoder-only model remembers of what it has read and written.

    blocks: one growing store a block.
    keep: True where a position is no padding, [B, Tk]; None where none is.
    """

    blocks: list[KeyValues]
    keep: Bool[Tensor, "B Tk"] | None = None

    @property
    def length(self) -> int:
        """Positions so far, padding counted."""
        return self.blocks[0].length

    def extend(self, rows: int, length: int, keep: Bool[Tensor, "B T"] | None) -> Bool[Tensor, "B Tk"] | None:
        """Note which of `length` more positions are padding; return that of all of them."""
        if keep is None and self.keep is None:
            return None
        known = keep if keep is not None else self.keep
        assert known is not None
        before = known.new_ones(rows, self.length) if self.keep is None else self.keep
        after = known.new_ones(rows, length) if keep is None else keep
        self.keep = torch.cat((before, after), dim=1)  # [B, Tk]
        return self.keep

    def select(self, rows: Int[Tensor, " N"]) -> None:
        """Keep these rows of the batch, in this order."""
        for store in self.blocks:
            store.select(rows)
        if self.keep is not None:
            self.keep = self.keep[rows]


@dataclass
class DecoderCache:
    """Everything the decoder remembers between steps, for B sentences of K hypotheses each.

    self_attention: one growing store a block, rows = B * K, hypotheses of a sentence side by side.
    memory: keys and values of the encoder's output, one pair a block, rows = B (stored once a sentence).
    memory_keep: True where the source is not padding, [B, 1, 1, Ts].
    """

    memory: list[Memory]
    memory_keep: Bool[Tensor, "B 1 1 Ts"]
    self_attention: list[KeyValues] = field(default_factory=list[KeyValues])

    def __post_init__(self) -> None:
        self.self_attention = self.self_attention or [KeyValues() for _ in self.memory]

    @property
    def length(self) -> int:
        """Positions written so far."""
        return self.self_attention[0].length

    def select_hypotheses(self, rows: Int[Tensor, " N"]) -> None:
        """Reorder the rows of the self-attention stores (B * K of them)."""
        for store in self.self_attention:
            store.select(rows)

    def select_sentences(self, sentences: Int[Tensor, " N"]) -> None:
        """Keep these sentences of the encoder's output; padding that none of them needs goes too."""
        keep = self.memory_keep[sentences]  # [N, 1, 1, Ts]
        longest = int(keep.flatten(1).any(0).nonzero().amax()) + 1 if bool(keep.any()) else 1
        self.memory_keep = keep[..., :longest]
        self.memory = [(k[sentences, :, :longest], v[sentences, :, :longest]) for k, v in self.memory]
