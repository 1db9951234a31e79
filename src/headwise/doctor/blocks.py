"""The residual path of a model and its sub-layers: attentions and feed-forward layers, each with its sum.

A sub-layer reads the stream (through a norm or not) and gives a branch; where the branch meets the stream
again is its sum. All of it is read from the recorded graph: no name of a class or an attribute takes part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch

from headwise.doctor.check import Place
from headwise.doctor.flow import JOINS, REACH, Flow, data_of, is_scaled, stream_of, weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.norms import Norm, carried
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, is_product

SCATTERS = {
    "index_put",
    "index_put_",
    "index_add",
    "index_add_",
    "scatter_add",
    "scatter_add_",
    "_index_put_impl_",
}


@dataclass(eq=False)
class SubLayer:
    """One sub-layer. `reads`: what its first products with weights read; `results`: what all of it passes.

    sum: where the branch meets the stream (None: nowhere), with `skip`, the operand that went round.
    before: the norm that `reads` comes from. inner: norms between the results and the sum.
    is_scaled: something learned, or a constant, multiplies the branch or the stream on the way.
    """

    kind: Literal["attention", "feed-forward"]
    stream: str
    reads: tuple[Value, ...]
    results: tuple[Value, ...]
    sites: tuple[Site, ...] = ()
    up: Op | None = None
    down: Op | None = None
    sum: Op | None = None
    skip: Value | None = None
    before: Norm | None = None
    inner: tuple[Norm, ...] = ()
    is_scaled: bool = False

    @property
    def last(self) -> Op:
        """The last operation of its own: the product with the values, or the second linear layer."""
        op = self.results[-1].op
        assert op is not None
        return op

    @property
    def module(self) -> str:
        return self.last.module

    @property
    def called(self) -> str:
        """ "an attention" or "a feed-forward layer", with the module it runs in."""
        words = "the attention" if self.kind == "attention" else "the feed-forward layer"
        return f"{words} in {self.module}" if self.module else words


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
    groups = _groups(probe)
    layers = [_attention(probe, group) for group in groups]
    layers.extend(_feed_forwards(found, layers))
    found.layers = sorted(layers, key=lambda layer: layer.last.index)
    with torch.no_grad():
        for layer in found.layers:
            layer.before = next((n for n in map(found.norm_behind, layer.reads) if n is not None), None)
            _sum(found, layer)
    return found


def _groups(probe: Probe) -> list[list[Site]]:
    """Attentions side by side (one for each head, say) are one sub-layer: none reads what another gives."""
    groups: list[list[Site]] = []
    below: list[set[Value]] = []
    for site in probe.sites:
        if not site.q_value.sources:
            continue
        reads = {site.q_value, site.k_value, site.v_value}
        sources, kind = site.q_value.sources, probe.site_kind(site)
        for group, after in zip(groups, below, strict=True):
            same = group[0].q_value.sources == sources and probe.site_kind(group[0]) == kind
            if same and not reads & after:
                group.append(site)
                after |= probe.base.record.descendants([site.mix.out])
                break
        else:
            groups.append([site])
            below.append(probe.base.record.descendants([site.mix.out]))
    return groups


def _attention(probe: Probe, group: list[Site]) -> SubLayer:
    reads = [_projected(value) for site in group for value in (site.q_value, site.k_value)]
    first = [_projected(site.q_value) for site in group]
    results = tuple(site.mix.out for site in group)
    stream = stream_of(probe, group[0].q_value)
    is_cross = probe.site_kind(group[0]) == "cross"
    return SubLayer(
        "attention", stream, tuple(dict.fromkeys(first if is_cross else first + reads)), results, tuple(group)
    )


def _projected(value: Value) -> Value:
    """What the projection to queries (keys) reads; the value itself where there is no projection."""
    current = value
    for _ in range(REACH):
        op = current.op
        if op is None:
            break
        if weight_of(op) is not None:
            return data_of(op)
        wide = [v for v in op.inputs if v.sources and v.tensor.is_floating_point()]
        if not wide or not (op.moves or op.pointwise or op.name in {"update", "native_layer_norm"}):
            break
        current = max(wide, key=lambda v: (v.tensor.numel(), v.index))
    return value


def _feed_forwards(found: Blocks, attentions: list[SubLayer]) -> list[SubLayer]:
    """Pairs of products with weights that lie between attentions, or whose code also runs there."""
    probe, record = found.probe, found.probe.base.record
    products = [op for op in record.ops if op.outputs and weight_of(op) is not None]
    mixes = {value for layer in attentions for value in layer.results}
    own = {op for op in products if _reads_mix(op, mixes)}  # the attention's own output projection
    projections = _projections(attentions)
    layers: list[SubLayer] = []
    for up in products:
        if up in own:
            continue
        for down in _next(found, up):
            if down not in own | projections and not any(layer.down is down for layer in layers):
                stream = stream_of(probe, up.out)
                layers.append(SubLayer("feed-forward", stream, (data_of(up),), (down.out,), up=up, down=down))
    after = [(layer.stream, record.descendants(layer.results)) for layer in attentions]
    above = {
        layer for layer in layers if any(s == layer.stream and layer.reads[0] in below for s, below in after)
    }
    leading = {
        layer for layer in layers if _leads_to_attention(record.descendants(layer.results), layer, attentions)
    }
    # A stem comes before every attention and a head after: a layer between two is neither, nor is one whose
    # code runs on both sides (layers of a loop, branches side by side).
    codes = {c for layer in above for c in _codes(layer)} & {c for layer in leading for c in _codes(layer)}
    return [layer for layer in layers if layer in above & leading or codes & _codes(layer)]


def _leads_to_attention(below: set[Value], layer: SubLayer, attentions: Iterable[SubLayer]) -> bool:
    return any(other.stream == layer.stream and any(v in below for v in other.reads) for other in attentions)


def _codes(layer: SubLayer) -> set[tuple[object, ...]]:
    """What the layers of one loop share: the lines that lead there; the module's path but for numbers."""
    widths = layer.reads[0].shape[-1], layer.results[0].shape[-1]
    lines = tuple((f.place.file, f.place.line) for f in layer.last.frames)
    path = re.sub(r"\b\d+\b", "#", layer.module)
    return {(lines, *widths), (path if "#" in path else lines, *widths)}


def _projections(attentions: list[SubLayer]) -> set[Op]:
    """The products with weights that give queries, keys and values."""
    found: set[Op] = set()
    sites = [site for layer in attentions for site in layer.sites]
    todo = [value for site in sites for value in (site.q_value, site.k_value, site.v_value)]
    seen: set[Value] = set()
    while todo:
        value = todo.pop()
        op = value.op
        if op is None or value in seen:
            continue
        seen.add(value)
        if weight_of(op) is not None:
            found.add(op)
        elif op.moves or op.pointwise or op.name == "native_layer_norm":
            todo.extend(v for v in op.inputs if v.sources and v.tensor.is_floating_point())
    return found


def _reads_mix(op: Op, mixes: set[Value]) -> bool:
    """Does a product read what an attention gives, with nothing but moves, gates and norms between?"""
    todo, seen = [data_of(op)], set[Value]()
    while todo and len(seen) < REACH:
        value = todo.pop()
        if value in mixes:
            return True
        maker = value.op
        if maker is None or value in seen:
            continue
        seen.add(value)
        if (
            maker.name.rstrip("_") in {"cat", "stack", "mul", "native_layer_norm"}
            or carried(maker) is not None
        ):
            todo.extend(v for v in maker.inputs if v.sources and v.tensor.is_floating_point())
    return False


def _next(found: Blocks, up: Op) -> list[Op]:
    """The products with weights that read a product's result: element-wise steps and norms between."""
    downs: list[Op] = []
    todo, seen = [up.out], {up.out}
    while todo and len(seen) < REACH:
        value = todo.pop(0)
        norm = found.by_entered.get(value)
        if norm is not None and norm.out not in seen:
            seen.add(norm.out)
            todo.append(norm.out)
        for op in value.users:
            if not op.outputs:
                continue
            if weight_of(op) is not None:
                if data_of(op) is value and op not in downs:
                    downs.append(op)
                continue
            meets = len({v for v in op.inputs if v.sources and v.tensor.is_floating_point()}) > 1
            if (op.moves or op.pointwise) and not (meets and op.name in JOINS) and op.name != "cat":
                for out in op.outputs:
                    if out not in seen:
                        seen.add(out)
                        todo.append(out)
    return downs


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
