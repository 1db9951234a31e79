"""The residual path of a model, with its sub-layers in order, each with its sum.

A sub-layer reads the stream (through a norm or not) and gives a branch; where the branch meets the stream
again is its sum. All of it is read from the recorded graph: no name of a class or an attribute takes part.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import torch

from headwise.doctor.check import Place
from headwise.doctor.flow import JOINS, REACH, Flow, is_scaled, stream_of, weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.norms import Norm, carried
from headwise.doctor.probe import Probe
from headwise.doctor.sites import is_product
from headwise.doctor.sub_layers import SubLayer, attention, attention_groups, feed_forwards

SCATTERS = {
    "index_put",
    "index_put_",
    "index_add",
    "index_add_",
    "scatter_add",
    "scatter_add_",
    "_index_put_impl_",
}


class Blocks(Flow):
    """The sub-layers of the base run in order."""

    def __init__(self, probe: Probe) -> None:
        super().__init__(probe)
        self.layers: list[SubLayer] = []

    def attentions(self, stream: str | None = None) -> list[SubLayer]:
        return [s for s in self.layers if s.kind == "attention" and stream in {None, s.stream}]

    @cached_property
    def streams(self) -> list[str]:
        return list(dict.fromkeys(layer.stream for layer in self.layers))

    def depth(self, stream: str) -> int:
        """Blocks of a stream: its self-attentions, one behind the other (cross-attentions do not count)."""
        kind = self.probe.site_kind
        return sum(1 for s in self.attentions(stream) if s.sites and kind(s.sites[0]) != "cross")

    def sums(self, stream: str) -> list[SubLayer]:
        """The sub-layers of a stream that have a sum, in order."""
        return [layer for layer in self.layers if layer.stream == stream and layer.sum is not None]

    def last_sum(self, stream: str) -> SubLayer | None:
        sums = self.sums(stream)
        return max(sums, key=lambda s: s.sum.index if s.sum else -1) if sums else None

    def reads_raw(self, layer: SubLayer) -> bool:
        """Is there a way from an earlier sum, or the embedding, to what a sub-layer reads, without a norm?"""
        raw = self.probe.base.record.ancestors(layer.reads, stop=set(self.by_out))
        sums = {other.sum.out for other in self.layers if other.sum is not None}
        return bool(raw & sums) or any(value in raw for value in self.starts.get(layer.stream, []))

    def is_normed_after(self, layer: SubLayer) -> bool:
        """Is all that reads the sum a norm (post-norm)?"""
        if layer.sum is None:
            return False
        readers = self.meets(layer.sum.out)
        return bool(readers) and all(op in self.norm_ops for op, _ in readers)

    def goes_round(self, layer: SubLayer) -> bool:
        """Is there a path from the start of the layer's stream to the output that does not pass the layer?

        A path through a sub-layer side by side with it, which reads the same value, is none.
        """
        record = self.probe.base.record
        starts = self.starts.get(layer.stream, [])
        results = {value for other in self.side_by_side(layer) for value in other.results}
        return self.probe.base.logits_value in record.descendants(starts, stop=results)

    def side_by_side(self, layer: SubLayer) -> list[SubLayer]:
        """The sub-layers that read what this one reads, itself included (a parallel block)."""
        mine = self._source(layer)
        alike = [o for o in self.layers if o.stream == layer.stream and self._source(o) is mine]
        return alike if layer in alike else [layer, *alike]

    def _source(self, layer: SubLayer) -> Value:
        """What a sub-layer reads, before its norm."""
        value = self.entrance(layer.reads[0])
        norm = self.by_out.get(value)
        return self.entrance(norm.entered) if norm is not None else value

    @cached_property
    def starts(self) -> dict[str, list[Value]]:
        """By stream: where inputs first meet weights (an embedding, a projection of numbers, a filter)."""
        found: dict[str, list[Value]] = {}
        for op in self.probe.base.record.ops:
            if (op.name != "embedding" and op.name != "convolution" and not is_product(op)) or not op.outputs:
                continue
            given = [v for v in op.inputs if v.sources]
            if given and not any(v.trained for v in given) and op.out.trained:
                found.setdefault(stream_of(self.probe, op.out), []).append(op.out)
        return found


def blocks(probe: Probe) -> Blocks:
    """The sub-layers of the base run, found once."""
    return probe.memo("blocks", lambda: _find(probe))


def _find(probe: Probe) -> Blocks:
    found = Blocks(probe)
    layers = [attention(probe, group) for group in attention_groups(probe)]
    layers.extend(feed_forwards(found, layers))
    found.layers = sorted(layers, key=lambda layer: layer.last.index)
    with torch.no_grad():
        for layer in found.layers:
            layer.before = next((n for n in map(found.norm_behind, layer.reads) if n is not None), None)
            _sum(found, layer)
    return found


def _sum(found: Blocks, layer: SubLayer) -> None:
    """Follow the branch forward to where it meets the stream, and note what it passes."""
    record = found.probe.base.record
    earlier = record.ancestors(layer.reads)
    branch = record.descendants(layer.results)
    todo, seen = list(layer.results), set(layer.results)
    inner: list[Norm] = []
    scaled = False
    while todo and len(seen) < REACH:
        todo.sort(key=lambda v: v.index)
        value = todo.pop(0)
        norm = found.by_entered.get(value)
        if norm is not None:
            inner.append(norm)
            todo.extend({norm.out} - seen)
            seen.add(norm.out)
            continue
        for op in sorted(value.users, key=lambda each: each.index):
            if not op.outputs:
                continue
            others = [v for v in op.inputs if v.sources and v not in branch and v.tensor.is_floating_point()]
            if op.name in JOINS and others:
                skip = next((v for v in others if _is_stream(found, v, earlier)), None)
                if skip is not None:
                    layer.sum, layer.skip, layer.inner = op, skip, tuple(inner)
                    layer.is_scaled = scaled or is_scaled(op) or _is_scaled_back(skip, found)
                    return
            is_weighted = layer.kind == "attention" and weight_of(op) is not None
            if is_weighted or op.moves or op.pointwise or op.name in SCATTERS | {"update"}:
                scaled = scaled or (value not in found.by_out and is_scaled(op))
                for out in op.outputs:
                    if out not in seen:
                        seen.add(out)
                        todo.append(out)
    layer.inner = tuple(inner)


def _is_scaled_back(value: Value, found: Blocks) -> bool:
    for _ in range(6):
        if value.op is None or value in found.by_out or carried(value.op) is None:
            return False
        if is_scaled(value.op):
            return True
        value = carried(value.op) or value
    return False


def _is_stream(found: Blocks, value: Value, earlier: set[Value]) -> bool:
    """Does a value lead back to what the sub-layer reads by moves, norms and sums alone?"""
    todo, seen = [value], set[Value]()
    while todo and len(seen) < REACH:
        current = todo.pop()
        if current in earlier:
            return True
        seen.add(current)
        norm = found.by_out.get(current)
        if norm is not None:
            todo.append(norm.entered)
        elif current.op is not None and (
            current.op.moves or current.op.pointwise or current.op.name == "update"
        ):
            todo.extend(
                v for v in current.op.inputs if v.sources and v not in seen and v.tensor.is_floating_point()
            )
    return False


# Where it was written


def line_in_function(op: Op, functions: set[tuple[str, str]]) -> Place | None:
    """The line at which one of these functions (file, name) was when the operation ran, innermost first."""
    return next((f.place for f in op.frames if (f.place.file, f.place.function) in functions), None)


def shared_line(op: Op, others: Iterable[Op]) -> Place | None:
    """The line of the innermost function that leads to this operation and to the others as well."""
    held = [{(f.place.file, f.place.function) for f in other.frames} for other in others]
    for frame in op.frames:
        if all((frame.place.file, frame.place.function) in each for each in held):
            return frame.place
    return op.place
