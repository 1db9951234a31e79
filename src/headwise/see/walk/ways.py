"""Small ways through a recorded graph: back to the products with weights, forward along what only moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headwise.doctor.flow import JOINS, data_of, weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.sites import constant, is_product, matrices

VIEWS = {"view", "_unsafe_view", "_reshape_alias", "clone", "contiguous", "expand", "alias", "detach"}
JOINED = {"cat", "stack", "index", "gather", "index_select", "constant_pad_nd", "roll", "flip", "repeat"}
REACH = 400


def is_fold(op: Op) -> bool:
    """Does an operation only look at the same elements in another shape or order (or copy them so)?"""
    if op.name == "cat":  # with nothing, as with a cache that is still empty
        return any(v.shape == op.out.shape for v in op.inputs)
    return op.name == "update" or (op.moves and op.name.rstrip("_") not in JOINED | {"tril", "triu"})


def is_data(value: Value) -> bool:
    """Does it carry numbers that come from the inputs?"""
    return bool(value.sources) and (value.tensor.is_floating_point() or value.tensor.is_complex())


def backward(
    ends: Iterable[Value], stops: Callable[[Op], bool], among: set[Value] | None = None
) -> tuple[list[Op], list[Op]]:
    """The operations that lead to the ends, and those at which the way back stopped; each list in order.

    Along data that comes from the inputs; `among` are values at which to stop as well.
    """
    ways, halts = set[Op](), set[Op]()
    todo, seen = list(ends), set[Value]()
    while todo and len(seen) < REACH:
        value = todo.pop()
        op = value.op
        if value in seen or op is None or (among and value in among):
            continue
        seen.add(value)
        if stops(op):
            halts.add(op)
            continue
        ways.add(op)
        todo.extend(v for v in op.inputs if is_data(v))
    return sorted(ways, key=lambda op: op.index), sorted(halts, key=lambda op: op.index)


def is_projection(op: Op) -> bool:
    """A product with weights, or a convolution."""
    return weight_of(op) is not None or (op.name == "convolution" and bool(op.inputs[1].trained))


def stops_projecting(op: Op) -> bool:
    """Where the way from an operand back to its projection ends: there, or at another product of data."""
    return is_projection(op) or (is_product(op) and all(v.sources for v in matrices(op)))


def tail(op: Op) -> list[Op]:
    """What belongs to a product with weights after it: its axes put back, and its bias."""
    found: list[Op] = []
    value = op.out
    source = data_of(op) if weight_of(op) is not None else op.inputs[0]
    if source.op is not None and source.op.name in {"view", "_unsafe_view"} and len(source.shape) == 2:
        source = source.op.inputs[0]
    users = [user for user in value.users if user.outputs]
    wide = source.shape[:-1] if source.shape else ()
    if op.name != "convolution" and len(users) == 1 and users[0].name in {"view", "_unsafe_view"}:
        is_flat = len(value.shape) == 2 and len(users[0].out.shape) == 3
        if (users[0].out.shape[:-1] == wide or is_flat) and users[0].out.shape[-1:] == value.shape[-1:]:
            found.append(users[0])
            value = users[0].out
    users = [user for user in value.users if user.outputs]
    if len(users) == 1 and users[0].name in {"add", "add_"}:
        others = [v for v in users[0].inputs if v is not value]
        if len(others) == 1 and others[0].trained and not others[0].sources and len(others[0].shape) == 1:
            found.append(users[0])
    return found


def end_of(op: Op) -> Value:
    """The result of a product with weights, bias and axes included."""
    after = tail(op)
    return after[-1].out if after else op.out


def factor_of(op: Op) -> float | None:
    """The constant that an operation multiplies (or divides) a value by; None for any other operation."""
    name = op.name.rstrip("_")
    if name not in {"mul", "div"} or sum(is_data(v) for v in op.inputs) != 1:
        return None
    main = next((v for v in op.inputs if is_data(v)), None)
    others = [v for v in op.inputs if v is not main]
    if name == "div" and op.inputs[0] is not main:
        return None
    number = constant(others[0]) if others else (op.numbers() or [None])[-1]
    if number is None or number == 0:
        return None
    return number if name == "mul" else 1 / number


def only(value: Value) -> list[Op]:
    """The operations that read a value and give something."""
    return [op for op in value.users if op.outputs]


def followed(values: Iterable[Value], passes: Callable[[Op], bool]) -> list[Op]:
    """The operations that values go on through, as long as each passes; in order."""
    found, seen = set[Op](), set[Value]()
    todo = list(values)
    while todo and len(seen) < REACH:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        for op in only(value):
            if passes(op):
                found.add(op)
                todo.extend(op.outputs)
    return sorted(found, key=lambda op: op.index)


def is_join(op: Op) -> bool:
    """Does an operation add two computed values?"""
    return op.name in JOINS and len({v for v in op.inputs if is_data(v)}) > 1
