"""The residual path of a model and its sub-layers: attentions and feed-forward layers, each with its sum.

A sub-layer reads the stream (through a norm or not) and gives a branch; where the branch meets the stream again is
its sum. All of it is read from the recorded graph: no name of a class or an attribute takes part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch

from headwise.doctor.check import Place
from headwise.doctor.norms import Norm, carried, norms
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, is_product, matrices
from headwise.doctor.trace import Op, Value

JOINS = {"add", "sub", "rsub", "lerp", "addcmul", "add_", "sub_", "lerp_", "addcmul_"}
SCATTERS = {
    "index_put",
    "index_put_",
    "index_add",
    "index_add_",
    "scatter_add",
    "scatter_add_",
    "_index_put_impl_",
}
REACH = 80  # values looked at on the way from a branch to its sum; mixtures of experts take some 60


@dataclass(eq=False)
class SubLayer:
    """One sub-layer. `reads`: what its first products with weights read; `results`: what all of it passes through.

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


@dataclass(eq=False)
class Blocks:
    """The sub-layers of the base run in order."""

    probe: Probe
    layers: list[SubLayer] = field(default_factory=lambda: [])

    @cached_property
    def by_entered(self) -> dict[Value, Norm]:
        return {norm.entered: norm for norm in norms(self.probe)}

    @cached_property
    def by_out(self) -> dict[Value, Norm]:
        return {norm.out: norm for norm in norms(self.probe)}

    @cached_property
    def norm_ops(self) -> set[Op]:
        """Every operation that is a part of a norm."""
        between = self.probe.base.record.between
        return {op for norm in norms(self.probe) for op in (norm.op, *between([norm.entered], [norm.out]))}

    def attentions(self, stream: str | None = None) -> list[SubLayer]:
        return [s for s in self.layers if s.kind == "attention" and stream in {None, s.stream}]

    @cached_property
    def streams(self) -> list[str]:
        return list(dict.fromkeys(layer.stream for layer in self.layers))

    def depth(self, stream: str) -> int:
        """Blocks of a stream: self-attentions that lie one behind the other (cross-attentions do not count)."""
        kind = self.probe.site_kind
        return sum(1 for s in self.attentions(stream) if s.sites and kind(s.sites[0]) != "cross")

    def sums(self, stream: str) -> list[SubLayer]:
        """The sub-layers of a stream that have a sum, in order."""
        return [layer for layer in self.layers if layer.stream == stream and layer.sum is not None]

    def last_sum(self, stream: str) -> SubLayer | None:
        sums = self.sums(stream)
        return max(sums, key=lambda s: s.sum.index if s.sum else -1) if sums else None

    def norm_behind(self, value: Value) -> Norm | None:
        """The norm that a value is the result of, through moves, dropout, gain and bias."""
        for _ in range(REACH):
            norm = self.by_out.get(value)
            if norm is not None:
                return norm
            before = carried(value.op) if value.op is not None else None
            if before is None:
                return None
            value = before
        return None

    def normed_before(self, layer: SubLayer) -> Norm | None:
        """The norm that a sub-layer's input comes from, with other single steps (a convolution) between."""
        value = layer.reads[0]
        for _ in range(REACH):
            norm = self.norm_behind(value)
            value = self.entrance(value)
            op = value.op
            if norm is not None or op is None or not (weight_of(op) is not None or op.name == "convolution"):
                return norm
            value = op.inputs[0] if op.name == "convolution" else data_of(op)
        return None

    def entrance(self, value: Value) -> Value:
        """Back through moves, dropout, scales and biases to where the value came to be."""
        for _ in range(REACH):
            if value in self.by_out or value.op is None:
                break
            before = carried(value.op)
            if before is None:
                break
            value = before
        return value

    def meets(self, value: Value) -> list[tuple[Op, Value]]:
        """The operations that do more with a value than carry it on, each with the operand they read."""
        found: list[tuple[Op, Value]] = []
        todo, seen = [value], {value}
        while todo:
            current = todo.pop()
            for op in current.users:
                if op not in self.norm_ops and carried(op) is current:
                    todo.extend(out for out in op.outputs if out not in seen)
                    seen.update(op.outputs)
                elif op.outputs:
                    found.append((op, current))
        return found

    def is_normed_after(self, layer: SubLayer) -> bool:
        """Is all that reads the sum a norm (post-norm)?"""
        if layer.sum is None:
            return False
        readers = self.meets(layer.sum.out)
        return bool(readers) and all(op in self.norm_ops for op, _ in readers)

    def goes_round(self, layer: SubLayer) -> bool:
        """Is there a path from what the layer's stream starts from to the output that does not pass the layer?

        A path through a sub-layer side by side with it, which reads the same value, is none.
        """
        record = self.probe.base.record
        starts = self.starts.get(layer.stream, [])
        results = {value for other in self.side_by_side(layer) for value in other.results}
        return self.probe.base.logits_value in record.descendants(starts, stop=results)

    def side_by_side(self, layer: SubLayer) -> list[SubLayer]:
        """The sub-layers that read what this one reads, itself included (a parallel block)."""
        mine = self._source(layer)
        return [o for o in self.layers if o is layer or o.stream == layer.stream and self._source(o) is mine]

    def _source(self, layer: SubLayer) -> Value:
        """What a sub-layer reads, before its norm."""
        value = self.entrance(layer.reads[0])
        norm = self.by_out.get(value)
        return self.entrance(norm.entered) if norm is not None else value

    @cached_property
    def starts(self) -> dict[str, list[Value]]:
        """By stream: where inputs first meet weights (an embedding, a projection of numbers, a convolution)."""
        found: dict[str, list[Value]] = {}
        for op in self.probe.base.record.ops:
            if op.name != "embedding" and op.name != "convolution" and not is_product(op) or not op.outputs:
                continue
            given = [v for v in op.inputs if v.sources]
            if given and not any(v.trained for v in given) and op.out.trained:
                found.setdefault(stream_of(self.probe, op.out), []).append(op.out)
        return found


def blocks(probe: Probe) -> Blocks:
    """The sub-layers of the base run, found once."""
    return probe.memo("blocks", lambda: _find(probe))


def stream_of(probe: Probe, value: Value) -> str:
    """ "encoder" where only the source takes part in a value, else "main"."""
    if probe.source is None or probe.main is None:
        return "main"
    return "main" if value.sources >> probe.main.leaf & 1 else "encoder"


def weight_of(op: Op) -> Value | None:
    """The matrix of weights of a product with weights; None for other operations."""
    if is_product(op):
        a, b = matrices(op)
        for data, weight in ((a, b), (b, a)):
            if data.sources and weight.trained and not weight.sources:
                return weight
    if op.name == "convolution" and op.inputs[0].sources and set(op.inputs[1].shape[2:]) == {1}:
        return op.inputs[1]
    return None


def data_of(op: Op) -> Value:
    """What a product with weights reads."""
    a, b = (op.inputs[0], op.inputs[1]) if op.name == "convolution" else matrices(op)
    return a if a.sources else b


def weight_name(op: Op) -> str:
    """The parameter that a product multiplies with, "" where it is made of several."""
    value = weight_of(op)
    while value is not None and value.op is not None:
        leaves = [v for v in value.op.inputs if v.trained]
        value = leaves[0] if len(leaves) == 1 else None
    return value.name.removeprefix("parameter ") if value is not None else ""


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
    """Pairs of products with weights, one behind the other, that lie between attentions, or are the same code."""
    probe, record = found.probe, found.probe.base.record
    products = [op for op in record.ops if op.outputs and weight_of(op) is not None]
    mixes = {value for layer in attentions for value in layer.results}
    own = {op for op in products if _reads_mix(op, mixes)}  # the attention's own output projection
    layers: list[SubLayer] = []
    for up in products:
        if up in own:
            continue
        for down in _next(found, up):
            if down not in own and not any(layer.down is down for layer in layers):
                stream = stream_of(probe, up.out)
                layers.append(SubLayer("feed-forward", stream, (data_of(up),), (down.out,), up=up, down=down))
    after = [(layer.stream, record.descendants(layer.results)) for layer in attentions]
    above = {
        layer for layer in layers if any(s == layer.stream and layer.reads[0] in below for s, below in after)
    }
    leading = {
        layer for layer in layers if _leads_to_attention(record.descendants(layer.results), layer, attentions)
    }
    # A stem comes before every attention and a head after: a layer between two, or one whose code runs on both
    # sides (layers of a loop, branches side by side), is neither.
    codes = {_code(layer) for layer in above} & {_code(layer) for layer in leading}
    return [layer for layer in layers if layer in above & leading or _code(layer) in codes]


def _leads_to_attention(below: set[Value], layer: SubLayer, attentions: Iterable[SubLayer]) -> bool:
    return any(other.stream == layer.stream and any(v in below for v in other.reads) for other in attentions)


def _code(layer: SubLayer) -> tuple[object, ...]:
    """The lines that lead to a feed-forward layer: the same for the layers that one loop runs."""
    frames = tuple((f.place.file, f.place.line) for f in layer.last.frames)
    return (frames, *(v.shape[-1] for v in (layer.reads[0], layer.results[0])))


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
    """The products with weights that read a product's result with only element-wise steps and norms between."""
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
                scaled = scaled or value not in found.by_out and is_scaled(op)
                for out in op.outputs:
                    if out not in seen:
                        seen.add(out)
                        todo.append(out)
    layer.inner = tuple(inner)


def is_scaled(op: Op) -> bool:
    """Does an operation multiply by something learned, or by a constant that is not one?"""
    name = op.name.rstrip("_")
    if name in {"lerp", "addcmul"} or name in {"add", "sub"} and float(op.kwargs.get("alpha", 1)) != 1:
        return True
    if name not in {"mul", "div"}:
        return False
    others = [v for v in op.inputs if not v.sources]
    if any(v.trained for v in others):
        return True
    number = next((float(v.tensor) for v in others if v.tensor.numel() == 1), None)
    number = op.numbers()[-1] if number is None and op.numbers() else number
    return number is not None and number != 1


def _is_scaled_back(value: Value, found: Blocks) -> bool:
    for _ in range(6):
        if value.op is None or value in found.by_out or carried(value.op) is None:
            return False
        if is_scaled(value.op):
            return True
        value = carried(value.op) or value
    return False


def _is_stream(found: Blocks, value: Value, earlier: set[Value]) -> bool:
    """Does a value lead back to what the sub-layer reads without passing weights (moves, norms and sums only)?"""
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
