"""Which axis of every tensor is which: labels carried through the recorded graph, operation by operation.

An axis is a row of atoms: one as a rule, several where axes were merged (heads into the batch), none where
its size is 1. Atoms that meet in a sum, a product or a table are one, so that an axis keeps its identity from
the input to the output, whatever sizes are equal by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwise.doctor.graph import Recording, Value
from headwise.see.walk.label_rules import Axis, Label, spread


class Labels:
    """The label of every value of a recording. Law: the atoms of an axis multiply to its size."""

    def __init__(self, record: Recording) -> None:
        self._parent: list[int] = []
        self._size: list[int] = []
        self._parts: dict[tuple[int, int], tuple[int, int]] = {}
        self._narrowed: dict[tuple[int, int], int] = {}
        self._whole: dict[int, int] = {}
        self._cut_from: dict[int, int] = {}
        self._of: dict[Value, Label] = {}
        self._torn: set[int] = set()
        self.pairs: set[int] = set()
        for op in record.ops:
            if op.outputs:
                spread(self, op)

    def __getitem__(self, value: Value) -> Label:
        """The label of a value, its atoms as they are known by now."""
        known = self._of.get(value)
        if known is None:
            known = self._of[value] = self.fresh(value.shape)
        return tuple(tuple(self.root(atom) for atom in axis) for axis in known)

    def torn(self, value: Value) -> tuple[bool, ...]:
        """Which axes a view has made of elements of several others."""
        return tuple(any(atom in self._torn for atom in axis) for axis in self._of.get(value, ()))

    def is_torn(self, atom: int) -> bool:
        return self.root(atom) in {self.root(each) for each in self._torn}

    def tear(self, shape: Sequence[int]) -> Label:
        """Axes of their own for what a view has put together across others."""
        made = self.fresh(shape)
        self._torn |= {atom for axis in made for atom in axis}
        return made

    def put(self, value: Value, label: Label) -> None:
        """Give a value its label."""
        self._of[value] = label

    def root(self, atom: int) -> int:
        """The atom that stands for all that this one has met."""
        while self._parent[atom] != atom:
            self._parent[atom] = self._parent[self._parent[atom]]
            atom = self._parent[atom]
        return atom

    def size(self, atom: int) -> int:
        return self._size[atom]

    def sizes(self, axis: Axis) -> int:
        return math.prod(self._size[atom] for atom in axis)

    def opened(self, axis: Axis) -> Axis:
        """The last two parts that an axis of one atom was cut into; the axis itself where it was not."""
        found = axis
        for (whole, _), parts in self._parts.items():
            if axis == (self.root(whole),):
                found = tuple(self.root(part) for part in parts)
        return found

    def partner(self, half: Axis) -> Axis:
        """The axis of pairs that was cut off beside this one, and a new one where there was none."""
        for outer, inner in self._parts.values():
            if half == (self.root(outer),) and self.root(inner) in {self.root(a) for a in self.pairs}:
                return (self.root(inner),)
        return self.axis(2)

    def new(self, size: int) -> int:
        self._parent.append(len(self._parent))
        self._size.append(size)
        return len(self._parent) - 1

    def axis(self, size: int) -> Axis:
        """An axis of its own."""
        return (self.new(size),) if size != 1 else ()

    def fresh(self, shape: Sequence[int]) -> Label:
        return tuple(self.axis(size) for size in shape)

    def unite(self, one: Axis, other: Axis) -> None:
        """Two axes are the same one."""
        if [self.size(a) for a in one] == [self.size(a) for a in other]:
            for a, b in zip(one, other, strict=True):
                a, b = self.root(a), self.root(b)
                self._parent[max(a, b)] = min(a, b)

    def split(self, atom: int, first: int) -> tuple[int, int]:
        """An atom cut into two, the outer of size `first`; the same two each time."""
        key = self.root(atom), first
        if key not in self._parts:
            self._parts[key] = self.new(first), self.new(self.size(atom) // first)
            self._cut_from |= dict.fromkeys(self._parts[key], key[0])
        return self._parts[key]

    def origins(self, atom: int) -> set[int]:
        """The atom itself, and all that it was cut out of, directly or by way of others."""
        found, todo = set[int](), [self.root(atom)]
        while todo:
            each = todo.pop()
            if each not in found:
                found.add(each)
                todo.extend(self.root(w) for part, w in self._cut_from.items() if self.root(part) == each)
        return found

    def healed(self, axis: Axis) -> Axis:
        """An axis whose atoms are the two parts of one, in order, is that one again."""
        whole = {tuple(self.root(part) for part in parts): key[0] for key, parts in self._parts.items()}
        return (self.root(whole[axis]),) if axis in whole else axis

    def narrow(self, axis: Axis, size: int) -> Axis:
        """A part of an axis; the same for every part of this size."""
        if size == 1 or self.sizes(axis) == size:
            return axis if size != 1 else ()
        if len(axis) != 1:
            return self.axis(size)
        key = self.root(axis[0]), size
        if key not in self._narrowed:
            self._narrowed[key] = self.new(size)
            self._cut_from[self._narrowed[key]] = key[0]
            self._whole[self._narrowed[key]] = key[0]
        return (self._narrowed[key],)

    def joined(self, axes: Sequence[Axis], size: int) -> Axis:
        """Axes laid end to end: the one that they were parts of, where they were."""
        wholes = {self._whole.get(axis[0]) for axis in axes if len(axis) == 1}
        if len(wholes) == 1 and all(len(axis) == 1 for axis in axes):
            whole = wholes.pop()
            if whole is not None and self.size(whole) == size:
                return (self.root(whole),)
        return self.axis(size)
