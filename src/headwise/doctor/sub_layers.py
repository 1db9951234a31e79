"""The sub-layers of a model: its attentions, and its feed-forward layers, pairs of products with weights."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from headwise.doctor.flow import JOINS, REACH, Flow, data_of, stream_of, weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.norms import Norm, carried
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site


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


def attention_groups(probe: Probe) -> list[list[Site]]:
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


def attention(probe: Probe, group: list[Site]) -> SubLayer:
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
        wide = [v for v in op.inputs if v.sources and (v.tensor.is_floating_point() or v.tensor.is_complex())]
        passes = {"update", "native_layer_norm", "view_as_complex", "view_as_real"}  # rotations in the plane
        if not wide or not (op.moves or op.pointwise or op.name in passes):
            break
        current = max(wide, key=lambda v: (v.tensor.numel(), v.index))
    return value


def feed_forwards(found: Flow, attentions: list[SubLayer]) -> list[SubLayer]:
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


def _next(found: Flow, up: Op) -> list[Op]:
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
