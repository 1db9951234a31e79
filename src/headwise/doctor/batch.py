"""Batches to try: the user's own rows, cut so that every axis has its own size, with one thing changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from headwise.doctor.adapt import Adapted, Stream, flatten

ROWS = (3, 5, 2, 7)
LENGTHS = (11, 13, 9, 7, 10, 12, 14, 8, 6, 5)


def numbers(ids: Tensor) -> list[int]:
    """The elements of an integer tensor."""
    return cast("list[int]", ids.flatten().tolist())  # pyright: ignore[reportUnknownMemberType]


def is_left(pad: Tensor) -> bool:
    """Do rows begin with padding, and none end with it? pad [B, T]."""
    return bool(pad[:, 0].any()) and not bool(pad[:, -1].any())


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs of one call, as leaves. Streams are read and written as [B, T] whatever the layout."""

    adapted: Adapted
    leaves: tuple[Tensor, ...]
    what: str = "the batch as given"

    @classmethod
    def given(cls, adapted: Adapted) -> Batch:
        return cls(adapted, tuple(leaf.detach() for leaf in flatten(adapted.subject.inputs)))

    def read(self, stream: Stream) -> Tensor:
        """The stream's leaf, batch first: ids [B, T], floats [B, ...]."""
        leaf = self.leaves[stream.leaf]
        return leaf.transpose(0, 1) if self.adapted.batch_axis and leaf.dim() >= 2 else leaf

    def write(self, stream: Stream, values: Tensor, what: str = "") -> Batch:
        """The same batch with other values in a stream (batch first)."""
        back = values.transpose(0, 1) if self.adapted.batch_axis and values.dim() >= 2 else values
        leaves = list(self.leaves)
        leaves[stream.leaf] = back.contiguous()
        return replace(self, leaves=tuple(leaves), what=what or self.what)

    @property
    def rows(self) -> int:
        streams = self.adapted.streams
        return self.read(streams[0]).shape[0] if streams else self.leaves[0].shape[0]

    def length(self, stream: Stream) -> int:
        """Positions of a stream: T of [B, T] or [B, T, D]; 1 where there is no such axis."""
        leaf = self.read(stream)
        return leaf.shape[1] if leaf.dim() in {2, 3} else 1

    def padding(self, stream: Stream) -> Tensor | None:
        """[B, T] True where there is padding, None where nothing marks it."""
        pad = self.adapted.subject.pad_id
        if stream.is_ids and pad is not None:
            ids = self.read(stream)
            found = ids == pad
            if stream.name == "target":
                found = found.clone()
                found[:, 0] = False  # the pad token often starts the decoder
            return found
        if stream.keep_leaf is not None:
            mask = self.leaves[stream.keep_leaf]
            mask = mask.transpose(0, 1) if self.adapted.batch_axis else mask
            return mask.double() != stream.keep_is
        if stream.count_leaf is not None:  # counted from the left: what is counted so is padded on the right
            counts = self.leaves[stream.count_leaf]
            return torch.arange(self.length(stream), device=counts.device) >= counts[:, None]
        return None

    def pool(self, stream: Stream, vocab: int | None) -> Tensor:
        """Ordinary token ids of a stream: those that are neither padding nor what every row starts with."""
        ids = flatten(self.adapted.subject.inputs)[stream.leaf]
        ids = ids.transpose(0, 1) if self.adapted.batch_axis and ids.dim() >= 2 else ids
        found = {number for number in numbers(ids) if number >= 0}  # -100 is a label that does not count
        if ids.dim() == 2 and ids.shape[0] > 1 and len(set(numbers(ids[:, 0]))) == 1:
            found.discard(int(ids[0, 0]))
        if self.adapted.subject.pad_id is not None:
            found.discard(self.adapted.subject.pad_id)
        if len(found) < 4 and vocab:
            found |= {i for i in range(min(vocab, 64)) if i != self.adapted.subject.pad_id}
        return torch.tensor(sorted(found) or [0], device=ids.device)

    def change(
        self, stream: Stream, where: Tensor, vocab: int | None, step: int = 1, what: str = ""
    ) -> Batch:
        """Other ordinary tokens (or other numbers) where `where` [B, T] (or [B] for images) is True."""
        values = self.read(stream)
        if not stream.is_ids:
            generator = torch.Generator().manual_seed(step)
            noise = torch.randn(values.shape, generator=generator, dtype=torch.float32).to(values)
            size = values.std() if values.numel() > 1 else 1.0
            shape = (*where.shape, *(1,) * (values.dim() - where.dim()))
            return self.write(stream, torch.where(where.view(shape), values + noise * size, values), what)
        pool = self.pool(stream, vocab)
        place = torch.searchsorted(pool, values.contiguous()).clamp(max=len(pool) - 1)
        known = pool[place] == values
        other = pool[(place + torch.where(known, step, 0)) % len(pool)]
        mask = (
            where
            if where.dim() == values.dim()
            else where.view(*where.shape, *(1,) * (values.dim() - where.dim()))
        )
        return self.write(stream, torch.where(mask, other, values), what)

    def filled(self, vocab: int | None) -> Batch:
        """The batch without padding: ordinary tokens in its place, and every mask input says so."""
        batch = self
        for stream in self.adapted.streams:
            pad = batch.padding(stream)
            if pad is None or not bool(pad.any()):
                continue
            if stream.is_ids:
                ids = batch.read(stream)
                pool = batch.pool(stream, vocab)
                spread = pool[
                    (torch.arange(ids.numel(), device=ids.device).view(ids.shape) * 7 + 3) % len(pool)
                ]
                batch = batch.write(stream, torch.where(pad, spread.to(ids), ids))
            batch = batch._mark(stream, torch.zeros_like(pad))
        return replace(batch, what="the batch without padding")

    def padded(self, stream: Stream, lengths: list[int], left: bool = False) -> Batch:
        """Rows of the stream cut to `lengths` and padded again: pad ids, and the mask input if any."""
        count = self.length(stream)
        at = torch.arange(count, device=self.leaves[stream.leaf].device)
        if left:
            pad = torch.stack([at < count - n for n in lengths])
        else:
            pad = torch.stack([at >= n for n in lengths])
        batch = self
        pad_id = self.adapted.subject.pad_id
        if stream.is_ids and pad_id is not None:
            batch = batch.write(stream, batch.read(stream).masked_fill(pad, pad_id))
        return replace(batch._mark(stream, pad), what=f"rows of {lengths} tokens, padded to {count}")

    def _mark(self, stream: Stream, pad: Tensor) -> Batch:
        """The inputs that say where a stream is padded (its mask, its row lengths) say this: pad [B, T]."""
        leaves = list(self.leaves)
        if stream.count_leaf is not None:
            leaves[stream.count_leaf] = (~pad).sum(1).to(leaves[stream.count_leaf])
        if stream.keep_leaf is None:
            return replace(self, leaves=tuple(leaves))
        old = leaves[stream.keep_leaf]
        if old.is_floating_point() and stream.keep_is == 0.0:
            low = old.min() if bool((old < 0).any()) else torch.tensor(float("-inf"))
            new = torch.where(pad, low, torch.zeros(()))
        else:
            new = torch.where(pad, 1 - stream.keep_is, stream.keep_is)
        new = new.transpose(0, 1) if self.adapted.batch_axis else new
        leaves[stream.keep_leaf] = new.to(old.dtype)
        return replace(self, leaves=tuple(leaves))

    def take_rows(self, rows: list[int]) -> Batch:
        """Some rows of every leaf that has a batch axis."""
        count = self.rows
        axis = self.adapted.batch_axis
        chosen = torch.tensor(rows)
        leaves = list(self.leaves)
        for place, leaf in enumerate(leaves):
            role = self.adapted.leaves[place].role
            own = axis if role in {"ids", "floats"} or (leaf.dim() == 2 and leaf.shape[axis] == count) else 0
            square = leaf.dim() == 2 and leaf.shape[0] == leaf.shape[1] and role == "mask"
            if leaf.dim() > own and leaf.shape[own] == count and (not square or self._is_keep(place)):
                leaves[place] = leaf.index_select(own, chosen.to(leaf.device))
        return replace(self, leaves=tuple(leaves))

    def _is_keep(self, place: int) -> bool:
        return any(stream.keep_leaf == place for stream in self.adapted.streams)

    def cut(self, lengths: dict[str, int], last: frozenset[str] = frozenset()) -> Batch:
        """The first positions of each stream, and of every other input that has an axis of that length.

        last: the streams of which the last positions are taken instead (they are padded on the left).
        """
        leaves = list(self.leaves)
        axis = 1 - self.adapted.batch_axis
        old = {stream.name: self.length(stream) for stream in self.adapted.streams}
        start = {name: size - lengths[name] if name in last else 0 for name, size in old.items()}
        main = self.adapted.streams[-1].name
        done = set[int]()
        for stream in self.adapted.streams:
            name = stream.name
            leaves[stream.leaf] = leaves[stream.leaf].narrow(axis, start[name], lengths[name])
            done.add(stream.leaf)
            pad = self.padding(stream) if stream.count_leaf is not None else None
            if stream.count_leaf is not None and pad is not None:
                done.add(stream.count_leaf)
                real = ~pad.narrow(1, start[name], lengths[name])
                leaves[stream.count_leaf] = real.sum(1).to(leaves[stream.count_leaf])
        for place, leaf in enumerate(leaves):
            if place in done or (leaf.dim() == 1 and self.adapted.leaves[place].role == "labels"):
                continue
            name = self.adapted.leaves[place].name.lower()
            owner = next((s.name for s in self.adapted.streams if s.keep_leaf == place), None)
            if owner is None and len(old) == 2 and "source" in old:
                owner = "source" if any(w in name for w in ("src", "source", "memory", "enc")) else main
            owner = owner or main
            for dim in range(
                1 if leaf.dim() > 1 and leaf.shape[0] == self.rows and leaf.shape[0] != old[owner] else 0,
                leaf.dim(),
            ):
                size = leaf.shape[dim]
                if size == old[owner]:
                    leaf = leaf.narrow(dim, start[owner], lengths[owner])
                elif size in old.values():
                    other = next(name for name, length in old.items() if length == size)
                    leaf = leaf.narrow(dim, start[other], lengths[other])
            leaves[place] = leaf
        return replace(self, leaves=tuple(leaves), what=f"cut to {lengths}")
