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
from headwise.doctor.flow import data_of, weight_of
from headwise.doctor.graph import Value
from headwise.doctor.heads import results
from headwise.doctor.sites import Site
from headwise.doctor.sub_layers import SubLayer
from headwise.see.walk.labels import Axis, Label, Labels
from headwise.see.walk.layers import Layers, inner_products, output_projection
from headwise.see.walk.once import Once
from headwise.see.walk.ways import backward, end_of, is_fold, is_projection, stops_projecting

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
        self._several: set[str] = set()
        self._sizes_of(probe)
        self._inputs(probe)
        for layer in layers.all:
            if layer.sum is not None:
                self._name(self._stream(layer), "D")
        for layer in layers.all:
            tokens = self._tokens(layer)
            for site in layer.sites:
                self._site(site, probe.site_kind(site), probe.base.batch.rows, tokens)
            self._widths(layer, tokens)
        self._sequences(probe, layers)
        self._tables(probe)
        self._outputs(probe)
        for name in self._several:
            self.sizes.pop(name, None)

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
        """The name of one axis of this size: its size where its letters do not hold everywhere."""
        if not axis:
            return str(size)
        if len(axis) == 1 and not self.called(axis)[0]:
            axis = self.labels.opened(tuple(self.labels.root(atom) for atom in axis))
        named = [self._told(atom) for atom in axis]
        if len(axis) == 1:
            return named[0] or str(size)
        heads = {"H", "Hk", "Dh", ""}
        called = set(self.called(axis))
        if called <= heads and "Dh" in called and size == self.sizes.get("D"):
            return "D"
        if called <= {"Hk", ""} and "Hk" in called and size == self.sizes.get("H"):
            return "H"
        if all(named):
            return "*".join(named)
        return str(size)

    def _told(self, atom: int) -> str:
        """The name of an atom where its letters have one size in the whole pass, and this one has it."""
        name = self._names.get(self.labels.root(atom), "")
        total = 1
        for part in name.split("*"):
            letter = part.lstrip("0123456789")
            if letter in ORDER:
                if letter in self._several or letter not in self.sizes:
                    return ""
                total *= int(part[: -len(letter)] or 1) * self.sizes[letter]
        is_told = not set(name) & set("BTSDHFVC") or total == self.size(atom)
        return name if is_told else ""

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
                self._count(name, self.size(axis[0]))

    def _count(self, name: str, size: int) -> None:
        """A letter stands for one size; what the inputs say of rows and positions holds before others."""
        if self.sizes.setdefault(name, size) != size and name not in {"B", "T", "S"}:
            self._several.add(name)

    def _inputs(self, probe: Once) -> None:
        """Rows of the batch, and the positions of token ids; of numbers the layers must tell more."""
        record, adapted = probe.record, probe.adapted
        leaves = {v.name: v for v in record.values if v.op is None and v.name.startswith("input ")}
        given = flatten(adapted.subject.inputs)
        rows, along = adapted.batch_axis, 1 - adapted.batch_axis
        for stream in adapted.streams:
            value, whole = leaves.get(f"input {stream.leaf}"), given[stream.leaf]
            word = "S" if stream.name == "source" and probe.source is not None else "T"
            if whole.dim() >= 2:
                self.sizes.setdefault("B", whole.shape[rows])
            if stream.is_ids and whole.dim() == 2:
                self.sizes.setdefault(word, whole.shape[along])
            if value is None:
                continue
            label = self.labels[value]
            if len(label) >= 2:
                self._name((label[rows],), "B")
            if stream.is_ids and len(label) in {1, 2}:
                self._name((label[along if len(label) == 2 else 0],), word)
        for place, leaf in enumerate(adapted.leaves):
            value = leaves.get(f"input {place}")
            if value is None or leaf.role not in {"mask", "labels", "counts"} or not value.shape:
                continue
            label = self.labels[value]
            if leaf.role != "mask" and self.labels.sizes(label[0]) == probe.base.batch.rows:
                self._name(label[:1], "B")
            for stream in adapted.streams:
                if stream.keep_leaf == place and len(label) == 2:
                    word = "S" if stream.name == "source" and probe.source is not None else "T"
                    self._name((label[rows],), "B")
                    self._name((label[along],), word)

    def _sequences(self, probe: Once, layers: Layers) -> None:
        """Numbers [B, T, ...] are a sequence where what is made of them is normalised over its last axis."""
        leaves = {v.name: v for v in probe.record.values if v.op is None}
        entered = [norm.entered for norm in layers.norms if norm.kind not in {"group", "batch", "instance"}]
        for stream in probe.adapted.streams:
            value = leaves.get(f"input {stream.leaf}")
            if value is None or stream.is_ids or len(value.shape) != 3:
                continue
            first = self.labels[value][:2]
            if any(len(v.shape) == 3 and self.labels[v][:2] == first for v in entered):
                is_source = stream.name == "source" and probe.source is not None
                self._name((first[1 - probe.adapted.batch_axis],), "S" if is_source else "T")

    def _stream(self, layer: SubLayer) -> Label:
        """The axis of a residual sum along which the last product with weights has its results."""
        assert layer.sum is not None
        last = layer.down if layer.down is not None else output_projection(layer)
        label = self.labels[layer.sum.out]
        if last is not None:
            made = self.labels[end_of(last)]
            width = made[1] if last.name == "convolution" else made[-1]
            if width and width in label:
                return (width,)
        return label[-1:] if len(label) <= 3 else ()

    def _tokens(self, layer: SubLayer) -> set[int]:
        """What the rows of an attention's projections are: batch and positions, and no heads."""
        found: set[int] = set()
        for site in layer.sites:
            _, halts = backward([site.q_value, site.k_value, site.v_value], stops_projecting)
            for op in halts:
                label = self.labels[end_of(op)]
                rows = (label[0], *label[2:]) if op.name == "convolution" else label[:-1]
                found |= {atom for axis in rows for atom in axis}
        return found

    def _site(self, site: Site, kind: str, rows: int, tokens: set[int]) -> None:
        """By construction: queries are [N, Tq, Dh], N holding the heads and the batch."""
        queries, keys = {"encoder": "SS", "cross": "TS"}.get(kind, "TT")
        for at, value, along in ((site.q_at, site.q_value, queries), (site.k_at, site.k_value, keys)):
            label, shape = self.labels[value], value.shape
            for axis in _moving(at[0, 0], shape):
                self._name((label[axis],), "Dh")
            for axis in _moving(at[0, :, 0], shape):
                if not self._is_part(label[axis]):
                    self._name((label[axis],), along)
        for axis in _moving(site.v_at[0, 0], site.v_value.shape):
            self._name((self.labels[site.v_value][axis],), "Dh")
        query, key = (
            [self.labels[value][axis] for axis in _moving(at[:, 0, 0], value.shape)]
            for at, value in ((site.q_at, site.q_value), (site.k_at, site.k_value))
        )
        self._slices(query, key, rows, tokens)

    def _is_part(self, axis: Axis) -> bool:
        """Was an axis cut out of a longer one (windows of positions)?"""
        return any(len(self.labels.origins(atom)) > 1 for atom in axis)

    def _slices(self, queries: list[Axis], keys: list[Axis], rows: int, tokens: set[int]) -> None:
        """What the products of an attention are side by side: rows of the batch, and heads.

        Heads are cut out of the width; what was cut out of rows and positions (a window) is none.
        """
        known = {self.labels.root(atom) for atom in tokens}
        atoms, shared = (
            [self.labels.root(atom) for axis in axes for atom in axis] for axes in (queries, keys)
        )
        if len(atoms) > 1 and "B" not in self.called(tuple(atoms)):
            whole = [a for a in atoms if self.labels.size(a) == rows and len(self.labels.origins(a)) == 1]
            for atom in whole[:1]:
                self._name(((atom,),), "B")
        heads = [a for a in atoms if self._is_head(a, known)]
        groups = [a for a in shared if self._is_head(a, known)]
        if rows > 1 and "B" not in self.called(tuple(atoms)):  # torn rows and heads are not told apart
            heads = [a for a in heads if not self.labels.is_torn(a)]
        if len(heads) == 1:
            self._name(((heads[0],),), "H")
            for atom in groups:
                self._name(((atom,),), "Hk")
        elif heads:  # the keys of a group are shared: an axis for the groups, and one within
            self._count("H", math.prod(self.size(a) for a in heads))
            if len(groups) == 1 and groups[0] in heads:
                self._name(((groups[0],),), "Hk")

    def _is_head(self, atom: int, tokens: set[int]) -> bool:
        named = self._names.get(atom, "")
        return named in {"", "H", "Hk"} and not self.labels.origins(atom) & tokens

    def _widths(self, layer: SubLayer, tokens: set[int]) -> None:
        """The widths within a sub-layer: of its projections, and between its feed-forward products."""
        if layer.kind == "feed-forward":
            products = inner_products(layer)
            inner = self.labels[data_of(products[-1])][-1]
            self._name((inner,), "F")
            for op in products[:-1]:
                axis = self.labels[end_of(op)][-1]
                count = self.labels.sizes(axis) // max(1, self.labels.sizes(inner))
                self._name((axis,), "F" if count <= 1 else f"{count}F")
            return
        stream = self._stream(layer) if layer.sum is not None else ()
        width = self.labels.sizes(stream[0]) if stream else self.sizes.get("D", 0)
        heads, head = self.sizes.get("H", 1), layer.sites[0].d_head
        for site in layer.sites:
            for value in (site.q_value, site.k_value, site.v_value):
                ways, halts = backward([value], stops_projecting)
                for op in ways:
                    for out in op.outputs:
                        self._groups(self.labels[out], heads, tokens)
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

    def _groups(self, label: Label, heads: int, tokens: set[int]) -> None:
        """Beside Dh, T and B an axis of fewer heads holds the groups that share keys."""
        known = [self.called(axis) for axis in label]
        if ["Dh"] not in known:
            return
        rows = {self.labels.root(atom) for atom in tokens}
        for axis, named in zip(label, known, strict=True):
            size = self.labels.sizes(axis)
            if named == [""] and not self._is_head(axis[0], rows):
                continue
            is_free = named == [""] and not any("H" in each or "Hk" in each for each in known)
            if is_free and 1 < size < heads and heads % size == 0:
                self._name((axis,), "Hk")

    def _tables(self, probe: Once) -> None:
        streams = {1 << stream.leaf for stream in probe.adapted.streams}
        for op in probe.record.ops:
            if op.name == "embedding" and op.outputs and op.inputs[1].sources in streams:
                self._name(self.labels[op.inputs[0]][:1], "V")
                if op.inputs[0].shape[1] == self.sizes.get("D", op.inputs[0].shape[1]):
                    self._name(self.labels[op.inputs[0]][1:], "D")
            if op.name == "convolution" and op.outputs and len(op.out.shape) == 4:
                data = self.labels[op.inputs[0]]
                self._name(data[1:2], "channels")
                self._name(data[2:3], "height")
                self._name(data[3:4], "width")

    def _outputs(self, probe: Once) -> None:
        """What a product with weights gives in the end: words of the vocabulary, or classes of a row."""
        if probe.failure is not None:
            return
        for value in results(probe)[:1]:
            ways, halts = backward([value], is_projection)
            straight = all(is_fold(op) or op.name in {"add", "add_", "slice"} for op in ways)
            if not value.shape or not straight or len(halts) != 1 or weight_of(halts[0]) is None:
                continue
            label = self.labels[value]
            is_words = value.shape[-1] == self.sizes.get("V") or probe.is_causal
            if len(label) == 3 and is_words:
                self._name(label[-1:], "V")
            elif len(label) == 2 and self.called(label[0]) == ["B"]:
                self._name(label[-1:], "C")


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
