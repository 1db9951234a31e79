"""The ways that values take: what carries one on, what normalises it, which weights read it."""

from __future__ import annotations

from functools import cached_property

from headwise.doctor.graph import Op, Value
from headwise.doctor.norms import Norm, carried, norms
from headwise.doctor.probe import Probe
from headwise.doctor.sites import is_product, matrices

JOINS = {"add", "sub", "rsub", "lerp", "addcmul", "add_", "sub_", "lerp_", "addcmul_"}
REACH = 80  # values looked at on one way; mixtures of experts take some 60


class Flow:
    """The base run with its norms."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe

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


def is_scaled(op: Op) -> bool:
    """Does an operation multiply by something learned, or by a constant that is not one?"""
    name = op.name.rstrip("_")
    if name in {"lerp", "addcmul"} or (name in {"add", "sub"} and float(op.kwargs.get("alpha", 1)) != 1):
        return True
    if name not in {"mul", "div"}:
        return False
    others = [v for v in op.inputs if not v.sources]
    if any(v.trained for v in others):
        return True
    number = next((float(v.tensor) for v in others if v.tensor.numel() == 1), None)
    number = op.numbers()[-1] if number is None and op.numbers() else number
    return number is not None and number != 1


def is_sum(value: Value) -> bool:
    """Is a value the sum of two computed ones?"""
    return value.op is not None and value.op.name in JOINS and sum(v.sources > 0 for v in value.op.inputs) > 1
