"""What padding reaches: one pass over padded rows, and what moves in it when the vectors at the pads change.

The vectors are changed behind the embedding, not the ids: a mask made from the ids stays as it is. So what
moves is computed from a pad's content, whatever was padded, on which side, in whatever layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from headwise.doctor.adapt import Stream
from headwise.doctor.check import NotApplicable
from headwise.doctor.masks import cut_after, hidden, later, weak_fill
from headwise.doctor.probe import Probe, Run, differs
from headwise.doctor.sites import Site, attention_sites
from headwise.doctor.trace import Value

PadForm = Literal[
    "hidden", "seen", "inverted", "wrong-axis", "other-stream", "weak", "after", "nothing", "unclear"
]


@dataclass(eq=False)
class Padded:
    """A pass over padded rows. in_use: the user's own batch is padded too.

    sides: the streams in which padding comes first; left: the main stream is one of them.
    """

    probe: Probe
    run: Run
    pads: dict[str, Tensor]
    in_use: bool
    sides: frozenset[str] = frozenset()

    @property
    def left(self) -> bool:
        main = self.probe.main
        return main is not None and main.name in self.sides

    @cached_property
    def sites(self) -> list[Site]:
        return attention_sites(self.run.record)

    @cached_property
    def sights(self) -> list[Sight]:
        """Every attention whose keys come from a padded stream, with what it makes of the pads."""
        found = [Sight(self, site, self.probe.site_kind(site)) for site in self.sites]
        return [sight for sight in found if sight.key_stream in self.pads]

    def moved(self, stream: str) -> dict[Value, Tensor]:
        """Which elements of which values are computed from the content of this stream's pads."""
        if stream not in self._moved:
            self._moved[stream] = self._moves(stream)
        return self._moved[stream]

    @cached_property
    def _moved(self) -> dict[str, dict[Value, Tensor]]:
        return {}

    def _moves(self, name: str) -> dict[Value, Tensor]:
        stream = next(s for s in self.probe.adapted.streams if s.name == name)
        record = self.run.record
        changes = self._changed(stream)
        wanted = sorted(record.descendants(changes), key=lambda v: v.index)
        wanted = [v for v in wanted if v.tensor.is_floating_point()]
        after = record.replay(changes, wanted)
        moved = {v: differs(v.tensor, new, self.probe.eps) for v, new in zip(wanted, after, strict=True)}
        return {v: there for v, there in moved.items() if bool(there.any())}

    def _changed(self, stream: Stream) -> dict[Value, Tensor]:
        """The first vectors of the stream, [B, T, D] or time first, with noise added at the pads."""
        bit, pad = 1 << stream.leaf, self.pads[stream.name]
        first: list[Value] = []
        for value in self.run.record.values:
            if not value.tensor.is_floating_point() or not value.sources & bit or value.tensor.dim() != 3:
                continue
            if tuple(value.shape[:2]) not in {tuple(pad.shape), tuple(pad.T.shape)}:
                continue
            given = value.op is None
            looked_up = (
                value.op is not None
                and value.trained
                and not any(v.tensor.is_floating_point() and v.sources & bit for v in value.op.inputs)
            )
            if (given and not stream.is_ids) or looked_up:
                first.append(value)
        if not first:
            raise NotApplicable(f"the vectors of the {stream.name} at the pads were not recognised")
        generator = torch.Generator().manual_seed(0)
        changes: dict[Value, Tensor] = {}
        square = pad.shape[0] == pad.shape[1]
        for value in first:
            as_given = tuple(value.shape[:2]) == tuple(pad.shape)
            where = pad if as_given and not (square and self.probe.adapted.batch_axis) else pad.T
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value.tensor)
            new = value.tensor.clone()  # with its strides: what follows may view it
            changes[value] = new.add_(noise * value.tensor.std().clamp(min=1e-3) * where[..., None].to(noise))
        return changes

    def reaches(self, stream: str) -> float:
        """By how much real outputs can move with what stands at the pads of a stream; 0 where they do not."""
        moved = self.moved(stream).get(self.run.logits_value)
        if moved is None:
            return 0.0
        there = self._real(moved)
        return float(there.double().mean()) if bool(there.any()) else 0.0

    def _real(self, elements: Tensor) -> Tensor:
        """The outputs that matter: those of real positions, or all where there is one for each row."""
        main = self.probe.main
        pad = self.pads.get(main.name) if main is not None else None
        if self.probe.is_sequence:
            rows = self.probe.rows_first(elements)
            if pad is not None and tuple(rows.shape[:2]) == tuple(pad.shape):
                return rows[~pad]
            return rows
        if elements.dim() == 2:
            return elements
        raise NotApplicable("the output has neither a row for each position nor one for each sentence")

    def real_outputs(self) -> Tensor:
        """The logits of real positions."""
        return self._real(self.run.logits)

    @property
    def what(self) -> str:
        """Which rows were padded, for a verdict's text."""
        return "the user's padded rows" if self.run is self.probe.given else self.run.batch.what

    def sights_of(self, stream: str) -> list[Sight]:
        """The attentions that read a stream, as keys or as queries."""
        return [s for s in self.sights if stream in {s.key_stream, s.query_stream}]

    def of_form(self, *forms: PadForm) -> list[Sight]:
        return [sight for sight in self.sights if sight.form in forms]


@dataclass(eq=False)
class Sight:
    """One attention in a padded pass: which of its queries and keys are pads, and what it hides of them."""

    padded: Padded
    site: Site
    kind: str

    @property
    def key_stream(self) -> str:
        streams = self.padded.probe.adapted.streams
        return streams[0].name if self.kind in {"encoder", "cross", "self"} else streams[-1].name

    @property
    def query_stream(self) -> str:
        streams = self.padded.probe.adapted.streams
        return streams[0].name if self.kind in {"encoder", "self"} else streams[-1].name

    @cached_property
    def pad_keys(self) -> Tensor | None:
        """[N, Tk] True where a key is a pad, None where that cannot be told."""
        return self._places(self.key_stream, keys=True)

    @cached_property
    def pad_queries(self) -> Tensor | None:
        """[N, Tq] True where a query is a pad; all False where queries are no positions of a stream."""
        found = self._places(self.query_stream, keys=False) if self.query_stream in self.padded.pads else None
        if found is None and self.site.shape[1] != self._length(self.query_stream):
            return torch.zeros(self.site.shape[:2], dtype=torch.bool, device=self.site.weights.device)
        return found

    @property
    def pools(self) -> bool:
        """Is it no attention among positions, but one query that sums a row up?"""
        return self.site.shape[1] == 1

    def _length(self, stream: str) -> int:
        batch = self.padded.run.batch
        return batch.length(next(s for s in batch.adapted.streams if s.name == stream))

    def _places(self, stream: str, *, keys: bool) -> Tensor | None:
        """Which of the site's keys or queries are the pads of a stream, by what moves with them.

        The moving places must be exactly some row's pads; where a layer below has spread the pads, the site
        takes the places of the first one with the same shape.
        """
        pad = self.padded.pads[stream]
        length = self.site.shape[2 if keys else 1]
        n = self.site.shape[0]
        for sight in (self, *self.padded.sights_of(stream)):
            for own in (keys,) if sight is self else (True, False):
                place = sight._moving(stream, keys=own)
                if place is None or tuple(place.shape) != (n, length):
                    continue
                if _known(place, pad, length):
                    return place
        return None

    def _moving(self, stream: str, *, keys: bool) -> Tensor | None:
        site = self.site
        value, at = (site.k_value, site.k_at) if keys else (site.q_value, site.q_at)
        there = self.padded.moved(stream).get(value)
        return None if there is None else Site.take(there, at).any(-1)

    @cached_property
    def form(self) -> PadForm:
        """What the mask makes of the pads, judged at the queries that are real."""
        pads, queries = self.pad_keys, self.pad_queries
        if pads is None or queries is None:
            return "unclear"
        site = self.site
        gone = hidden(site)
        region = self.region
        real_pad = (~queries)[:, :, None] & pads[:, None, :] & region
        real_real = (~queries)[:, :, None] & (~pads)[:, None, :] & region
        if (
            bool(real_real.any())
            and bool(gone[real_real].all())
            and not bool(gone[region & pads[:, None, :]].any())
        ):
            return "inverted"
        if not bool(real_pad.any()):
            return "nothing"
        if self._takes_other_stream(gone, pads):
            return "other-stream"
        if bool(gone[real_pad].all()):
            return "hidden"
        from_pads = queries[:, :, None] & region
        if bool(from_pads.any()) and bool(gone[from_pads].all()) and not bool(gone[real_pad].any()):
            return "wrong-axis"
        if weak_fill(site, real_pad) is not None:
            return "weak"
        if cut_after(site, real_pad) is not None:
            return "after"
        return "seen"

    @cached_property
    def region(self) -> Tensor:
        """Where this attention may look without padding: the past of a causal one, else everywhere."""
        _, rows, columns = self.site.shape
        everywhere = torch.ones(self.site.shape, dtype=torch.bool, device=self.site.weights.device)
        causal = self.kind == "decoder" or (self.kind == "self" and self.padded.probe.is_causal)
        return (
            everywhere & ~later(rows, columns, device=everywhere.device)
            if causal and rows == columns
            else everywhere
        )

    def _takes_other_stream(self, gone: Tensor, pads: Tensor) -> bool:
        """Are the hidden keys of a cross-attention those at which the target, not the source, is padded?"""
        queries = self.pad_queries
        if self.kind != "cross" or queries is None or self.site.shape[1] != self.site.shape[2]:
            return False
        return bool((queries & ~pads).any()) and bool((gone == queries[:, None, :]).all())


def _known(place: Tensor, pad: Tensor, length: int) -> bool:
    """Is each row of places one row's pads, possibly after or before places that are no tokens?"""
    extra = length - pad.shape[1]
    if extra < 0 or not bool(place.any()):
        return False
    pad = pad.to(place.device)
    none = pad.new_zeros(pad.shape[0], extra)
    for rows in (torch.cat([none, pad], 1), torch.cat([pad, none], 1)):
        if bool((place[:, None, :] == rows[None]).all(-1).any(1).all()):
            return True
    return False
