"""Names for axes, by what each is in the graph: batch, time, width, heads. Sizes alone name nothing.

    B batch    T positions    S source positions    D model width    H heads    Hk key-value heads
    Dh head width    F feed-forward width    V vocabulary    C classes

An axis without a name is shown as its size. A question mark says that a view has made the axis of elements
of several others: heads cut without a transpose are [B, H?, T?, Dh?]. Merged axes are joined with a star:
B*H. Scores are [B, H, T, T] by construction: queries first.
"""

from __future__ import annotations

import math

from headwise.doctor.adapt import flatten
from headwise.doctor.flow import data_of
from headwise.doctor.graph import Value
from headwise.doctor.heads import results
from headwise.doctor.sites import Site
from headwise.doctor.sub_layers import SubLayer
from headwise.see.walk.labels import Axis, Label, Labels
from headwise.see.walk.layers import Layers, inner_products
from headwise.see.walk.once import Once
from headwise.see.walk.ways import backward, end_of, stops_projecting

ORDER = ("B", "T", "S", "D", "H", "Hk", "Dh", "F", "V", "C")
LEGEND = {
    "B": "batch", "T": "positions", "S": "source positions", "D": "model width", "H": "heads",
    "Hk": "key-value heads", "Dh": "head width", "F": "feed-forward width", "V": "vocabulary",
    "C": "classes",
}  # fmt: skip


class Axes:
    """The names of the axes of one pass, and their sizes in the batch as given."""

    def __init__(self, probe: Once, layers: Layers) -> None:
        self.labels = Labels(probe.record)
        self.sizes: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._full: dict[int, int] = {}
        self._sizes_of(probe)
        self._inputs(probe)
        for layer in layers.all:
            if layer.sum is not None:
                self._name(self.labels[layer.sum.out][-1:], "D")
        for layer in layers.all:
            for site in layer.sites:
                self._site(site, "S" if probe.site_kind(site) == "cross" else "T", probe.base.batch.rows)
            self._widths(layer)
        self._tables(probe)
        self._outputs(probe)

    def _sizes_of(self, probe: Once) -> None:
        """The size of every atom in the whole batch."""
        leaves = {v.name: v for v in probe.record.values if v.op is None}
        for place, tensor in enumerate(flatten(probe.adapted.subject.inputs)):
            value = leaves.get(f"input {place}")
            if value is not None and not probe.is_other:
                for axis, size in zip(self.labels[value], tensor.shape, strict=False):
                    if len(axis) == 1:
                        self._full[axis[0]] = size
        for op, call in probe.sizes.of.items():
            for value, form in (*zip(op.outputs, call.outputs, strict=False),):
                for axis, size in zip(self.labels[value], form.shape, strict=False):
                    if len(axis) == 1:
                        self._full.setdefault(axis[0], size)

    def size(self, atom: int) -> int:
        """How long an axis is in the batch as given."""
        return self._full.get(self.labels.root(atom), self.labels.size(atom))

    def whole(self, value: Value) -> tuple[int, ...]:
        """A value's shape in the batch as given, as its axes tell it."""
        return tuple(math.prod(self.size(atom) for atom in axis) for axis in self.labels[value])

    def name(self, axis: Axis, size: int) -> str:
        """The name of one axis of this size."""
        named = [self._names.get(self.labels.root(atom), "") for atom in axis]
        if not axis:
            return str(size)
        if len(axis) == 1:
            return named[0] or str(size)
        heads = {"H", "Hk", "Dh", ""}
        if set(named) <= heads and "Dh" in named and size == self.sizes.get("D"):
            return "D"
        if set(named) <= {"Hk", ""} and size == self.sizes.get("H"):
            return "H"
        if all(named):
            return "*".join(named)
        return str(size)

    def names(self, value: Value, shape: tuple[int, ...]) -> tuple[str, ...]:
        """The names of a value's axes, which have these sizes in the batch as given."""
        label = self.labels[value]
        torn = self.labels.torn(value) or (False,) * len(label)
        told = [self.name(axis, size) for axis, size in zip(label, shape, strict=True)]
        return tuple(
            f"{name}?" if is_torn and not name.isdigit() else name
            for name, is_torn in zip(told, torn, strict=True)
        )

    def label(self, value: Value) -> Label:
        return self.labels[value]

    def called(self, axis: Axis) -> list[str]:
        """The name of each atom of an axis."""
        return [self._names.get(self.labels.root(atom), "") for atom in axis]

    def _name(self, axes: Label, name: str) -> None:
        """Name axes of one atom that have no name yet."""
        for axis in axes:
            if len(axis) == 1 and self.labels.root(axis[0]) not in self._names:
                self._names[self.labels.root(axis[0])] = name
                self.sizes.setdefault(name, self.size(axis[0]))

    def _inputs(self, probe: Once) -> None:
        record, adapted = probe.record, probe.adapted
        leaves = {v.name: v for v in record.values if v.op is None and v.name.startswith("input ")}
        given = flatten(adapted.subject.inputs)
        for stream in adapted.streams:
            value = leaves.get(f"input {stream.leaf}")
            whole = given[stream.leaf]
            word = "S" if stream.name == "source" else "T"
            if whole.dim() >= 2:
                self.sizes.setdefault("B", whole.shape[adapted.batch_axis])
            if whole.dim() in {2, 3}:
                self.sizes.setdefault(word, whole.shape[1 - adapted.batch_axis])
            if value is None:
                continue
            label = self.labels[value]
            if len(label) >= 2:
                self._name((label[adapted.batch_axis],), "B")
            if len(label) in {2, 3}:
                self._name((label[1 - adapted.batch_axis],), word)
            if len(label) == 1:
                self._name(label, word)
        for place, leaf in enumerate(adapted.leaves):
            value = leaves.get(f"input {place}")
            if value is None or leaf.role not in {"mask", "labels", "counts", "other"} or not value.shape:
                continue
            label = self.labels[value]
            if self.labels.sizes(label[0]) == probe.base.batch.rows:
                self._name(label[:1], "B")
            for stream in adapted.streams:
                if stream.keep_leaf == place and len(label) == 2:
                    word = "S" if stream.name == "source" else "T"
                    self._name((label[adapted.batch_axis],), "B")
                    self._name((label[1 - adapted.batch_axis],), word)

    def _site(self, site: Site, keys: str, rows: int) -> None:
        """By construction: queries are [N, Tq, Dh], N holding the heads and the batch."""
        for at, value, along in ((site.q_at, site.q_value, "T"), (site.k_at, site.k_value, keys)):
            label, shape = self.labels[value], value.shape
            for axis in _moving(at[0, 0], shape):
                self._name((label[axis],), "Dh")
            for axis in _moving(at[0, :, 0], shape):
                self._name((label[axis],), along)
            if value is site.q_value:
                self._slices([label[axis] for axis in _moving(at[:, 0, 0], shape)], rows)
        for axis in _moving(site.v_at[0, 0], site.v_value.shape):
            self._name((self.labels[site.v_value][axis],), "Dh")

    def _slices(self, axes: list[Axis], rows: int) -> None:
        """What the products of an attention are side by side: rows of the batch, and heads."""
        atoms = [atom for axis in axes for atom in axis]
        if len(atoms) > 1 and "B" not in self.called(tuple(atoms)):
            for atom in [a for a in atoms if self.labels.size(a) == rows][:1]:
                self._name(((atom,),), "B")
        for atom in atoms:
            self._name(((atom,),), "H")

    def _widths(self, layer: SubLayer) -> None:
        """The widths within a sub-layer: of its projections, and between its feed-forward products."""
        width = self.sizes.get("D", 0)
        if layer.kind == "feed-forward":
            products = inner_products(layer)
            inner = self.labels[data_of(products[-1])][-1]
            self._name((inner,), "F")
            for op in products[:-1]:
                axis = self.labels[end_of(op)][-1]
                count = self.labels.sizes(axis) // max(1, self.sizes.get("F", 1))
                self._name((axis,), "F" if count <= 1 else f"{count}F")
            return
        heads, head = self.sizes.get("H", 1), self.sizes.get("Dh", 0)
        for site in layer.sites:
            for value in (site.q_value, site.k_value, site.v_value):
                ways, halts = backward([value], stops_projecting)
                for op in ways:
                    for out in op.outputs:
                        self._groups(self.labels[out], heads)
                for op in halts:
                    self._width(self.labels[end_of(op)][-1:], width, heads, head)
                for op in ways:
                    for out in op.outputs:
                        if out.shape and out.shape[-1] in {width, heads * head} and len(out.shape) == 3:
                            self._width(self.labels[out][-1:], width, heads, head)

    def _width(self, axes: Label, width: int, heads: int, head: int) -> None:
        for axis in axes:
            if len(axis) != 1:
                continue
            size = self.labels.size(axis[0])
            if width and size % width == 0 and size // width <= 3:
                self._name((axis,), "D" if size == width else f"{size // width}D")
            elif head and size == heads * head:
                self._name((axis,), "H*Dh")
            elif head and size == self.sizes.get("Hk", 0) * head:
                self._name((axis,), "Hk*Dh")
            elif head and size % head == 0 and size > head:
                self._name((axis,), f"{size // head}Dh")

    def _groups(self, label: Label, heads: int) -> None:
        """Beside Dh, T and B an axis of fewer heads holds the groups that share keys."""
        known = [self.called(axis) for axis in label]
        if ["Dh"] not in known:
            return
        for axis, named in zip(label, known, strict=True):
            size = self.labels.sizes(axis)
            is_free = named == [""] and not any("H" in each or "Hk" in each for each in known)
            if is_free and 1 < size < heads and heads % size == 0:
                self._name((axis,), "Hk")

    def _tables(self, probe: Once) -> None:
        streams = {1 << stream.leaf for stream in probe.adapted.streams}
        for op in probe.record.ops:
            if op.name == "embedding" and op.outputs and op.inputs[1].sources in streams:
                self._name(self.labels[op.inputs[0]][:1], "V")
                self._name(self.labels[op.inputs[0]][1:], "D")
            if op.name == "convolution" and op.outputs and len(op.out.shape) == 4:
                data = self.labels[op.inputs[0]]
                self._name(data[1:2], "channels")
                self._name(data[2:3], "height")
                self._name(data[3:4], "width")

    def _outputs(self, probe: Once) -> None:
        if probe.failure is not None:
            return
        vocab = self.sizes.get("V")
        for value in results(probe)[:1]:
            if value.shape and len(value.shape) >= 2 and value.op is not None:
                axis = self.labels[value][-1:]
                size = value.shape[-1]
                is_words = size == vocab or probe.is_causal
                self._name(axis, "V" if is_words and len(value.shape) == 3 else "C")


def _moving(at: object, shape: tuple[int, ...]) -> list[int]:
    """The axes along which these elements of a tensor of this shape lie apart."""
    numbers = [int(x) for x in at.tolist()]  # pyright: ignore
    found: list[int] = []
    for axis in range(len(shape)):
        below = 1
        for size in shape[axis + 1 :]:
            below *= size
        if len({number // below % shape[axis] for number in numbers}) > 1:
            found.append(axis)
    return found
