"""What no recognised step has: folded into the steps that use it, or steps of their own under its line."""

from __future__ import annotations

from headwise.doctor.graph import Op, Value
from headwise.see.walk import words
from headwise.see.walk.axes import Axes
from headwise.see.walk.once import Once
from headwise.see.walk.steps import Claims, Draft
from headwise.see.walk.ways import is_fold


class Rest:
    """The operations that are left, and what may be asked of them."""

    def __init__(self, claims: Claims, probe: Once, axes: Axes) -> None:
        self.claims, self.axes = claims, axes
        self.ops = probe.record.ops
        floats = [place for place, leaf in enumerate(probe.adapted.leaves) if leaf.role == "floats"]
        self._floats = sum(1 << place for place in floats)
        self._masks = self._mask_values(probe)

    def claim(self) -> None:
        """Give every operation that is left to a step."""
        self._fold_forward()
        self._empty()
        self._own_steps([op for op in self.ops if op not in self.claims.of and not is_fold(op)])
        self._fold_forward()
        self._fold_backward()
        self._fold_forward(shared=True)
        for op in self.ops:  # views that nothing reads
            self.claims.claim("other", "unused", [op], op.outputs, words.told(op))

    def _is_data(self, value: Value) -> bool:
        """Does it carry what the model computes, rather than a mask or a table made beside it?"""
        return bool(value.sources) and (value.trained or bool(value.sources & self._floats))

    def _is_prepared(self, op: Op) -> bool:
        """Does no data take part (a mask from ids, a table of sines, a weight turned)?"""
        return not any(self._is_data(v) for v in op.outputs)

    def _mask_values(self, probe: Once) -> set[Value]:
        """Every value that the masks of the attentions are made from."""
        found: set[Value] = set()
        todo = [other for site in probe.sites for _, other in site.masks]
        while todo:
            value = todo.pop()
            if value in found or (self._is_data(value) and value.tensor.is_floating_point()):
                continue
            found.add(value)
            if value.op is not None:
                todo.extend(value.op.inputs)
        return found

    def _fold_forward(self, shared: bool = False) -> None:
        """A view, or what is prepared for one step alone, belongs to the step that reads it.

        shared: also what was prepared for several steps; the first of them has it.
        """
        for op in reversed(self.ops):
            if op in self.claims.of:
                continue
            readers = [user for out in op.outputs for user in self._readers(out) if user is not op]
            steps = {self.claims.of.get(user) for user in readers}
            if not readers or None in steps:
                continue
            is_prepared = self._is_prepared(op)
            if len(steps) > 1 and is_prepared and not shared:
                continue
            if is_fold(op) or is_prepared:
                self.claims.give(op, min((step for step in steps if step is not None), key=_at))

    def _empty(self) -> None:
        """What holds nothing and is read by nothing (torch's own norms make it) belongs to what follows."""
        for op in self.ops:
            if op in self.claims.of or not op.outputs or any(v.tensor.numel() or v.users for v in op.outputs):
                continue
            later = (self.claims.of.get(other) for other in self.ops[op.index + 1 :])
            draft = next((each for each in later if each is not None), None)
            if draft is not None:
                self.claims.give(op, draft)

    def _readers(self, value: Value) -> list[Op]:
        last = self.ops[-1]
        return [*value.users, last] if not last.outputs and value in last.inputs else value.users

    def _fold_backward(self) -> None:
        """A view that no step reads (of the result) belongs to the step that made it."""
        for op in self.ops:
            if op in self.claims.of or not is_fold(op):
                continue
            makers = [v.op for v in op.inputs if v.op is not None]
            draft = next((self.claims.of[maker] for maker in makers if maker in self.claims.of), None)
            if draft is not None:
                self.claims.give(op, draft)
                if op.outputs and not self._is_prepared(op):
                    draft.results = [v for v in draft.results if v not in op.inputs] + [op.out]

    def _own_steps(self, ops: list[Op]) -> None:
        """Operations one after the other on one line (or prepared in one call) make one step."""
        cluster: list[Op] = []
        for op in ops:
            if cluster and not self._together(cluster[-1], op):
                self._own(cluster)
                cluster = []
            cluster.append(op)
        if cluster:
            self._own(cluster)

    def _together(self, one: Op, other: Op) -> bool:
        if not other.outputs and other.inputs and other.inputs[0].op is one:
            return True  # Python reads the number
        if any(op in self.claims.of or not is_fold(op) for op in self.ops[one.index + 1 : other.index]):
            return False  # another step ran between them, on the same line
        is_prepared = self._is_prepared(one)
        if one.modules != other.modules or is_prepared != self._is_prepared(other):
            return False
        if is_prepared:
            outer = [[f.call for f in op.frames[-2:]] for op in (one, other)]
            is_table = any(v.tensor.is_floating_point() for op in (one, other) for v in op.outputs)
            alike = self._is_mask(one) == self._is_mask(other) or not is_table
            return outer[0] == outer[1] and alike
        return bool(one.frames) and one.frames[:1] == other.frames[:1]

    def _is_mask(self, op: Op) -> bool:
        return any(v in self._masks for v in op.outputs)

    def _own(self, ops: list[Op]) -> None:
        own = set(ops)
        outs = [out for op in ops for out in op.outputs]
        if not outs:  # Python reads a number
            if not self._checked(own):
                self.claims.claim("other", words.listed(ops), ops, [])
            return
        read_on = [v for v in outs if any(user not in own for user in v.users)] or outs[-1:]
        last = read_on[-1]
        if any(v in self._masks for v in read_on):
            last = [v for v in read_on if v in self._masks][-1]
        is_asked = last.tensor.numel() == 1 and not any(user not in own for user in last.users)
        if is_asked and self._checked(own):
            return
        if self._is_prepared(ops[-1]) or any(self._is_mask(op) for op in ops):
            name = "mask made" if any(self._is_mask(op) for op in ops) else "prepared"
            self.claims.claim("other", name, ops, [last], words.listed(ops))
            return
        added = [(op, self._positions_added(op)) for op in ops]
        table = next((told for _, told in added if told), "")
        others = [words.factor(op) for op, told in added if not told]
        if table:
            self.claims.claim("add", "add positions", ops, [last], ", ".join([*others, table]))
            return
        name, told = words.listed(ops, 2), ", ".join(dict.fromkeys(others))
        self.claims.claim("other", name, ops, [last], told if told != name else "")

    def _checked(self, ops: set[Op]) -> bool:
        """Numbers that only Python reads (is any infinite?) belong to the step that they ask about."""
        makers = [self._maker(v) for op in ops for v in op.inputs]
        draft = max((maker for maker in makers if maker is not None), key=_at, default=None)
        if draft is not None:
            for op in ops:
                self.claims.give(op, draft)
        return draft is not None

    def _positions_added(self, op: Op) -> str:
        """`learned table` or `fixed table` for a sum with what stands for positions; else ""."""
        if op.name not in {"add", "add_"} or len(op.inputs) != 2 or not op.outputs:
            return ""
        for value in op.inputs:
            maker = self._maker(value)
            is_stream = self.axes.names(op.out, op.out.shape)[-1:] == ("D",)
            if maker is not None and maker.kind == "embedding" and maker.name == "positions" and is_stream:
                return "learned table"
            width = op.out.shape[-1:]
            is_table = len(value.shape) >= 2 and value.shape[-1:] == width and value.tensor.numel() > width[0]
            if is_table and not self._is_data(value):
                names = {*self.axes.names(value, value.shape), *self.axes.names(op.out, op.out.shape)}
                if names & {"T", "S"} and self.axes.names(op.out, op.out.shape)[-1] == "D":
                    return "learned table" if value.trained else "fixed table"
        return ""

    def _maker(self, value: Value) -> Draft | None:
        """The step that a value comes from, through views."""
        for _ in range(6):
            if value.op is None:
                return None
            draft = self.claims.of.get(value.op)
            if draft is not None:
                return draft
            if not is_fold(value.op):
                return None
            value = value.op.inputs[0]
        return None


def _at(draft: Draft) -> float:
    return draft.at
