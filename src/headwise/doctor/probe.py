"""What may be asked of a model: run it, change one thing, compare every tensor, differentiate, train a copy.

The user's model stays as it was: what runs is a copy, or a large model itself, put back afterwards (see
`runner`, `trainer`, `untouched`). The batch is the user's own, cut so that batch, lengths and widths all
differ in size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import Adapted, Stream
from headwise.doctor.batch import LENGTHS, ROWS, Batch
from headwise.doctor.needs import lacking
from headwise.doctor.outputs import flattened
from headwise.doctor.runner import ROUNDINGS, Moved, Run, differs, largest, ordinary
from headwise.doctor.sites import Site, attention_sites
from headwise.doctor.trace import Value, key_of
from headwise.doctor.trainer import Gradients, Trainer

if TYPE_CHECKING:
    from headwise.doctor.made import Making

__all__ = ["Gradients", "Moved", "Probe", "Run", "differs"]

MOST_POSITIONS = 14  # one run each


class Seen:
    """Influence by value index, as far as it is asked for: the logits' is cheap, all values' is not."""

    def __init__(
        self, logits: int, cheap: Callable[[], Tensor], full: Callable[[], dict[int, Tensor]]
    ) -> None:
        self._logits, self._cheap, self._full = logits, cheap, full
        self._known: Tensor | None = None
        self._all: dict[int, Tensor] | None = None

    def get(self, index: int) -> Tensor | None:
        """The bits of a value's elements, None where nothing moves it."""
        if self._all is not None:
            return self._all.get(index)
        if index == self._logits:
            if self._known is None:
                self._known = self._cheap()
            return self._known if bool(self._known.any()) else None
        self._all = self._full()
        return self._all.get(index)

    def __getitem__(self, index: int) -> Tensor:
        held = self.get(index)
        if held is None:
            raise KeyError(index)
        return held

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and self.get(index) is not None


class Probe(Trainer):
    """The only way a check meets a model. Facts first, then questions."""

    def __init__(self, adapted: Adapted, making: Making | None = None, device: str | None = None) -> None:
        super().__init__(adapted, device)
        self.making = making
        self.kind = adapted.kind
        self.pad_id = adapted.subject.pad_id
        self.resize_error: BaseException | None = None
        self._start()

    # Facts

    @property
    def main(self) -> Stream | None:
        """The stream the logits belong to."""
        return self.adapted.main

    @property
    def source(self) -> Stream | None:
        """The encoder's stream of an encoder-decoder."""
        return self.adapted.source

    @property
    def is_causal(self) -> bool:
        return self.kind in {"decoder", "encoder-decoder"}

    @cached_property
    def vocab(self) -> int | None:
        """Rows of the table that the main stream's ids are looked up in."""
        return self._vocab(self.main) if self.main is not None and self.main.is_ids else None

    def _vocab(self, stream: Stream) -> int | None:
        for op in self.given.record.ops:
            if op.name == "embedding" and op.inputs[1].sources >> stream.leaf & 1:
                return op.inputs[0].shape[0]
        return None

    @property
    def length(self) -> int:
        """Positions of the main stream in the base batch."""
        return self.batch.length(self.main) if self.main is not None else 1

    @cached_property
    def is_sequence(self) -> bool:
        """Do the logits have a row for each position of the main stream: [B, T, V] (or time first)?"""
        logits = self.base.logits
        return logits.dim() == 3 and tuple(self.rows_first(logits).shape[:2]) == (
            self.batch.rows,
            self.length,
        )

    @cached_property
    def has_padding(self) -> bool:
        """Can padding be tried: is there a pad id, or an input that marks it?"""
        return any(self.can_pad(stream) for stream in self.adapted.streams)

    def can_pad(self, stream: Stream) -> bool:
        """Is there a pad id for this stream, or an input that marks or counts?"""
        marked = stream.keep_leaf is not None or stream.count_leaf is not None
        return marked or (stream.is_ids and self.pad_id is not None)

    def lacks(self, needs: frozenset[str]) -> str | None:
        """What a check needs and the subject does not give, as a sentence; None when all is there."""
        return lacking(self, needs)

    # The batch

    def _start(self) -> None:
        """Run the user's batch once; choose the dtype that works, then the batch with sizes of its own."""
        whole = Batch.given(self.adapted)
        try:
            self.given = self.run(whole)
        except Exception:
            self.dtype = next((p.dtype for p in self.user_model.parameters()), torch.float32)
            self._copy = None
            try:
                self.given = self.run(whole)
            except Exception as error:
                self.failure = error
                return
        else:
            self._prefer_finite(whole)
        self.batch = whole
        self.base = self.given
        self.order = flattened(self)
        if self.order is not None:
            self.base = self.given = self.run(whole)
        self.batch, self.base = self._choose(whole)

    def _prefer_finite(self, whole: Batch) -> None:
        """Back to the model's own dtype where only double is not finite: finfo(float64).min as float32."""
        own = next((p.dtype for p in self.user_model.parameters() if p.is_floating_point()), self.dtype)
        if own == self.dtype or not bool(torch.isnan(self.given.logits).any()):
            return
        wide, self.dtype, self._copy = self.dtype, own, None
        try:
            narrow = self.run(whole)
        except Exception:
            narrow = self.given
        if not bool(torch.isnan(narrow.logits).any()):
            self.given = narrow
            return
        self.dtype, self._copy = wide, None

    def _choose(self, whole: Batch) -> tuple[Batch, Run]:
        if not self.adapted.streams:
            return whole, self.given
        taken = {size for p in self.user_model.parameters() for size in p.shape}
        for site in attention_sites(self.given.record):
            taken |= {site.d_head, max(1, site.shape[0] // max(1, whole.rows))}
        full = whole.filled(self.vocab)
        rows = next((n for n in ROWS if n not in taken), 3)
        chosen = [i % whole.rows for i in range(rows)]
        for lengths in self._lengths(full, taken | {rows}):
            try:
                batch = full.take_rows(chosen)
                if lengths is not None:
                    batch = batch.cut(lengths)
                batch = self._distinct(batch)
                run = self.run(batch)
            except Exception as error:
                self.resize_error = self.resize_error or error
                continue
            return batch, run
        try:
            return full, self.run(full)
        except Exception:
            return whole, self.given

    def _lengths(self, batch: Batch, taken: set[int]) -> Iterator[dict[str, int] | None]:
        """Lengths to try: each stream its own, all sizes different; then the same for both; then as given."""
        streams = [s for s in self.adapted.streams if batch.read(s).dim() in {2, 3}]
        if len(streams) == len(self.adapted.streams):
            free = {s.name: [n for n in LENGTHS if n <= batch.length(s) and n not in taken] for s in streams}
            if len(streams) == 1:
                name = streams[0].name
                if free[name]:
                    yield {name: free[name][0]}
            else:
                first, second = streams
                pairs = [(a, b) for b in free[second.name] for a in free[first.name] if a != b]
                pairs.sort(key=lambda pair: (LENGTHS.index(pair[1]), -pair[0]))
                if pairs:
                    yield {first.name: pairs[0][0], second.name: pairs[0][1]}
                both = [n for n in free[first.name] if n in free[second.name]]
                if both:
                    yield {first.name: both[0], second.name: both[0]}
        yield None

    def _distinct(self, batch: Batch) -> Batch:
        """Rows that were taken twice get other tokens."""
        for stream in self.adapted.streams:
            values = batch.read(stream)
            for row in range(1, batch.rows):
                if any(torch.equal(values[row], values[r]) for r in range(row)):
                    shape = values.shape[:2] if stream.is_ids else values.shape[:1]
                    where = torch.zeros(shape, dtype=torch.bool, device=values.device)
                    where[row] = True
                    batch = batch.change(stream, where, self._vocab(stream), step=row)
                    values = batch.read(stream)
        return batch

    # Influence

    @cached_property
    def eps(self) -> float:
        """Rounding of the coarsest floating type that the pass computes in."""
        eps = torch.finfo(self.dtype).eps
        for value in self.base.record.values:
            if value.op is not None and value.sources and value.trained and value.tensor.is_floating_point():
                eps = max(eps, torch.finfo(value.tensor.dtype).eps)
        return eps

    @cached_property
    def noise(self) -> float:
        """The same input twice: what 'no change' looks like in the logits, floored at rounding."""
        again = self.run(self.batch)
        scores = self.base.logits
        floor = ROUNDINGS * self.eps * (largest(scores[ordinary(scores)]) or 1.0)
        return max(largest(again.logits - scores), floor)

    def compare(self, batch: Batch, base: Run | None = None) -> Moved:
        """Run the changed batch and compare it with the base run, value by value."""
        return Moved(base or self.base, self.run(batch), self.eps)

    def change(self, stream: Stream, where: Tensor, batch: Batch | None = None, step: int = 1) -> Batch:
        """Other ordinary tokens where `where` [B, T] is True."""
        return (batch or self.batch).change(stream, where, self._vocab(stream), step)

    def everywhere(self, stream: Stream, batch: Batch | None = None, value: bool = False) -> Tensor:
        """A [B, T] mask for a stream, filled with `value`: mark what to change in it."""
        held = (batch or self.batch).read(stream)
        shape = held.shape[:2] if stream.is_ids or held.dim() == 3 else held.shape[:1]
        return torch.full(tuple(shape), value, device=held.device)

    def change_after(self, t: int, stream: Stream | None = None) -> Batch:
        """Every token after position t changed, in every row."""
        chosen = stream or self.main
        assert chosen is not None
        where = self.everywhere(chosen)
        where[:, t + 1 :] = True
        return self.change(chosen, where)

    @cached_property
    def rows_seen(self) -> dict[int, Tensor]:
        """By value index: a bit for each batch row, set where changing that row moves the element."""
        bits: dict[int, Tensor] = {}
        for row in range(self.batch.rows):
            batch = self.batch
            for stream in self.adapted.streams:
                where = self.everywhere(stream)
                where[row] = True
                batch = self.change(stream, where, batch)
            self._add(bits, self.compare(batch), 1 << row, torch.uint8 if self.batch.rows < 8 else torch.long)
        return bits

    def positions(self, stream: Stream) -> list[int]:
        """The positions that are changed one at a time: all of a short stream, some of a long one."""
        length = self.batch.length(stream)
        if length <= MOST_POSITIONS:
            return list(range(length))
        step = (length - 1) / (MOST_POSITIONS - 1)
        return sorted({round(i * step) for i in range(MOST_POSITIONS)})

    def positions_seen(self, stream: Stream) -> Seen:
        """By value index: a bit for each position of the stream, set where changing it moves the element.

        What the logits show is known from passes that are not recorded; any other value asks for recorded
        ones.
        """
        held = self._positions.get(stream.name)
        if held is None:
            held = self._positions[stream.name] = Seen(
                self.base.logits_value.index,
                lambda: self._logits_by_position(stream),
                lambda: self._values_by_position(stream),
            )
        return held

    def _each_position(self, stream: Stream) -> Iterator[tuple[int, Batch]]:
        for t in self.positions(stream):
            where = self.everywhere(stream)
            where[:, t] = True
            yield t, self.change(stream, where)

    def _logits_by_position(self, stream: Stream) -> Tensor:
        bits = torch.zeros_like(self.base.logits, dtype=torch.long)
        for t, batch in self._each_position(stream):
            bits |= differs(self.base.logits, self.run(batch, record=False).logits, self.eps).long() << min(
                t, 62
            )
        return bits

    def _values_by_position(self, stream: Stream) -> dict[int, Tensor]:
        bits = dict[int, Tensor]()
        for t, batch in self._each_position(stream):
            self._add(bits, self.compare(batch), 1 << min(t, 62))
        return bits

    @cached_property
    def _positions(self) -> dict[str, Seen]:
        return dict[str, Seen]()

    def _add(self, bits: dict[int, Tensor], moved: Moved, bit: int, kind: torch.dtype = torch.long) -> None:
        for value in self.base.record.values:
            if value.op is None or not value.sources or not value.tensor.is_floating_point():
                continue
            there = moved(value)
            if value.index in bits:
                bits[value.index] |= there.to(kind) * bit
            elif bool(there.any()):
                bits[value.index] = there.to(kind) * bit

    # Shapes

    def axes(self, value: Value) -> tuple[str, ...]:
        """A name for each axis by its size: "B", "T" (main stream), "S" (source), or "" for any other."""
        main, source = self.main, self.source
        names = {self.batch.rows: "B"}
        if source is not None:
            names[self.batch.length(source)] = "S"
        if main is not None:
            names[self.length] = "T"
        return tuple(names.get(size, "") for size in value.shape)

    def rows_first(self, tensor: Tensor) -> Tensor:
        """Logits as [B, T, V] where the model gives [T, B, V]."""
        if self.adapted.layout == "time-major" and tensor.dim() == 3:
            return tensor.transpose(0, 1)
        return tensor

    # Attention

    @cached_property
    def sites(self) -> list[Site]:
        """Every attention of the base run, in order."""
        return attention_sites(self.base.record) if self.failure is None else []

    def site_kind(self, site: Site) -> str:
        """ "encoder", "decoder" (self-attention of the target) or "cross"; "self" with one stream."""
        if self.source is None or self.main is None:
            return "self"
        target = 1 << self.main.leaf
        if not site.q_value.sources & target:
            return "encoder"
        return "decoder" if site.k_value.sources & target else "cross"

    def sites_of(self, *kinds: str) -> list[Site]:
        """The sites of these kinds; "causal" are those that must not see the future."""
        wanted = set(kinds)
        if "causal" in wanted:
            wanted |= {"decoder"} | ({"self"} if self.kind == "decoder" else set())
        if "bidirectional" in wanted:
            wanted |= {"encoder"} | ({"self"} if self.kind == "encoder" else set())
        return [site for site in self.sites if self.site_kind(site) in wanted]

    def site_rows(self, site: Site) -> Tensor:
        """[N] the batch row of each canonical slice, by influence on its queries and keys; -1 if rows mix."""
        taint = self.rows_seen
        seen = torch.zeros(site.shape[0], dtype=torch.long, device=site.q_at.device)
        for value, at in ((site.q_value, site.q_at), (site.k_value, site.k_at)):
            held = taint.get(value.index)
            if held is None:
                continue
            part = Site.take(held, at).flatten(1)
            for row in range(self.batch.rows):
                seen |= ((part >> row & 1).any(1)).long() << row
        rows = torch.full_like(seen, -1)
        for row in range(self.batch.rows):
            rows[seen == 1 << row] = row
        return rows

    # Memory

    def memo(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` gave when it was first asked for under this name: a run that several checks need."""
        if name not in self._memo:
            self._memo[name] = make()
        return self._memo[name]

    @cached_property
    def _memo(self) -> dict[str, Any]:
        return {}

    # Names

    def parameter_tensor(self, name: str) -> Tensor:
        """A parameter or buffer of the user's model by its path."""
        for found in (self.user_model.named_parameters, self.user_model.named_buffers):
            for path, tensor in found(remove_duplicate=False):
                if path == name:
                    return tensor
        raise KeyError(name)

    def module_at(self, path: str) -> nn.Module:
        """A module of the user's model by its path."""
        return self.user_model.get_submodule(path)

    def key(self, tensor: Tensor) -> tuple[Any, ...]:
        return key_of(tensor)
