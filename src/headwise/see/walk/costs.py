"""What a step costs: FLOPs of its products, and the trained numbers that it reads.

FLOPs count two for each multiplication with its addition, in matrix products and convolutions alone: the
convention of torch.utils.flop_counter. The total agrees with it, but for products with a vector (mv, addmv,
dot), which torch's counter leaves out and which are counted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from headwise.doctor.graph import Op, Recording, Value
from headwise.see.walk.sizes import Call
from headwise.see.walk.steps import Draft

_COUNTED = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"}


def flops_of(op: Op, call: Call) -> int:
    """FLOPs of one operation; 0 for what is no product, and for what failed."""
    if not call.outputs:
        return 0
    shapes = [form.shape for form in call.inputs]
    if op.name in {"addmm", "baddbmm", "addmv"}:
        shapes = shapes[1:]
    if op.name in _COUNTED:
        return 2 * math.prod(shapes[0]) * (shapes[1][-1] if len(shapes[1]) > 1 else 1)
    if op.name == "convolution":
        weight = shapes[1]
        is_transposed = bool(op.args[6])
        places = shapes[0] if is_transposed else call.outputs[0].shape
        return 2 * places[0] * math.prod(places[2:]) * math.prod(weight)
    return 0


def is_uncounted(op: Op) -> bool:
    """Is this a product that a kernel of its own does, of which no FLOPs are counted?"""
    name = op.name.strip("_")
    return (
        bool(op.outputs)
        and op.name not in _COUNTED
        and (
            name.endswith(("mm", "matmul", "rnn_layer", "linear"))
            or "_mm_" in name
            or name == "cdist_forward"
        )
    )


class Parameters:
    """How many trained numbers each step reads.

    A parameter that steps share in parts (one matrix for Q, K and V) counts for each by its part, any other
    as a whole, also where a step reads only some of its rows.
    """

    def __init__(self, record: Recording, of: Mapping[Op, Draft]) -> None:
        self._reads: dict[Draft, dict[Value, int]] = {}
        self._readers: dict[Value, set[Draft]] = {}
        for op, draft in of.items():
            for value in op.inputs:
                if value.trained and not value.sources and not _is_passed_on(op, draft, of):
                    for leaf, size in _leaves(value, draft, of):
                        self._readers.setdefault(leaf, set()).add(draft)
                        held = self._reads.setdefault(draft, {})
                        held[leaf] = held.get(leaf, 0) + size

    def read_by(self, draft: Draft) -> frozenset[Value]:
        """The parameters that a step reads."""
        return frozenset(self._reads.get(draft, ()))

    def of(self, draft: Draft) -> int:
        total = 0
        for leaf, size in self._reads.get(draft, {}).items():
            whole = leaf.tensor.numel()
            total += size if len(self._readers[leaf]) > 1 and size < whole else whole
        return total


def _is_passed_on(op: Op, draft: Draft, of: Mapping[Op, Draft]) -> bool:
    """Is a weight only turned or cut here, for another operation to read?"""
    return op.moves and not any(v.sources for v in op.inputs) and any(out.users for out in op.outputs)


def _leaves(value: Value, draft: Draft, of: Mapping[Op, Draft]) -> Iterable[tuple[Value, int]]:
    """The parameters that a value without data comes from in this step, each with how much of it is left."""
    todo, seen = [(value, value.tensor.numel())], set[Value]()
    while todo:
        each, size = todo.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.op is None:
            if each.name.startswith("parameter"):
                yield each, min(size, each.tensor.numel())
            continue
        if of.get(each.op) is not draft and not each.op.moves:  # a table looked up in a step of its own
            continue
        for before in each.op.inputs:
            if before.trained and not before.sources:
                is_cut = each.op.moves and before.tensor.numel() > each.tensor.numel()
                todo.append((before, size if is_cut else before.tensor.numel()))
