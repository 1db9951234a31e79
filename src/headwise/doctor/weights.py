"""Weights: who holds them, which of them is one and the same, which a pass reads, and how they were drawn."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.doctor.check import Place
from headwise.doctor.probe import Probe
from headwise.doctor.trace import PRODUCTS, Op, Recording, Value
from headwise.doctor.written import whose

DEPTH = 6  # lists within dicts within objects: how deep a module's plain attributes are searched
SAMPLE = 512  # rows and columns of a table from which its distribution is told
_OF_MODULES = frozenset(vars(nn.Module()))


@dataclass(frozen=True, eq=False)
class Unregistered:
    """Trainable tensors that a module keeps where torch does not look; `where` is the attribute.

    module: what holds them in turn, None for a bare tensor.
    """

    owner: str
    attribute: str
    where: str
    module: nn.Module | None
    tensors: tuple[Tensor, ...]


def unregistered(model: nn.Module) -> list[Unregistered]:
    """Modules, parameters and tensors that need gradients, in plain attributes of the model's modules.

    Searched through lists, dicts, closures, partials and plain objects. Frozen ones are left out, and
    what the model holds elsewhere too.
    """
    held = {id(t) for t in (*model.parameters(), *model.buffers())}
    seen = {id(module) for module in model.modules()}
    found: list[Unregistered] = []
    for path, module in named(model):
        for name, value in vars(module).items():
            if name in _OF_MODULES:
                continue
            for where, each in _within(value, name, seen, DEPTH):
                tensors = list(each.parameters()) if isinstance(each, nn.Module) else [each]
                loose = tuple(t for t in tensors if t.requires_grad and id(t) not in held)
                if loose:
                    inner = each if isinstance(each, nn.Module) else None
                    found.append(Unregistered(path, name, where, inner, loose))
    return found


def _within(value: Any, where: str, seen: set[int], depth: int) -> Iterator[tuple[str, nn.Module | Tensor]]:
    if depth == 0 or id(value) in seen or isinstance(value, (str, bytes, int, float, type, types.ModuleType)):
        return
    if isinstance(value, (nn.Module, Tensor)):
        seen.add(id(value))
        yield where, value
        return
    seen.add(id(value))
    for inner, each in _parts(value, where):
        yield from _within(each, inner, seen, depth - 1)


def _parts(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[Any, Any]", value).items():
            yield f"{where}[{key!r}]", each
    elif isinstance(value, (list, tuple, set, frozenset)):
        for place, each in enumerate(cast("Iterable[Any]", value)):
            yield f"{where}[{place}]", each
    elif isinstance(value, functools.partial):
        yield from (
            (f"{where}'s arguments", each) for each in (value.func, *value.args, *value.keywords.values())
        )
    elif isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield f"{where}'s closure", cell.cell_contents
            except ValueError:  # an empty cell
                continue
    elif isinstance(value, types.MethodType):
        yield where, value.__self__
    elif hasattr(value, "__dict__") and class_of(type(cast("object", value))) == "user":
        held = cast("dict[str, Any]", vars(value))
        yield from ((f"{where}.{name}", each) for name, each in held.items())


@functools.cache
def class_of(kind: type) -> str:
    """Whose class it is: "user", "library" (transformers and the like), "torch" or "python"."""
    module = __import__("sys").modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        return "python" if kind.__module__ == "builtins" else "user"  # a notebook's, or made on the fly
    return whose(file)


def parents(path: str) -> str:
    """The path of the module that holds this one."""
    return path.rpartition(".")[0]


# Shared


def named(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every module with its path."""
    return cast("list[tuple[str, nn.Module]]", list(model.named_modules()))  # pyright: ignore


def matrices(module: nn.Module) -> dict[str, Tensor]:
    """The weights of a module with two axes or more, by their paths in it (norms and biases have one)."""
    return {name: p for name, p in module.named_parameters(remove_duplicate=False) if p.dim() >= 2}


def lists(model: nn.Module) -> Iterator[tuple[str, list[tuple[str, nn.Module]]]]:
    """Each container of torch that is indexed by number, with its entries; one may come more than once."""
    for path, module in named(model):
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            entries = [(f"{path}.{name}" if path else name, child) for name, child in entries_of(module)]
            if len(entries) > 1:
                yield path, entries


def entries_of(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Children with repeats, which named_children leaves out."""
    held = module._modules  # pyright: ignore[reportPrivateUsage]
    return [(name, child) for name, child in held.items() if child is not None]


# Read


def parameters_read(record: Recording) -> set[str]:
    """Names of the parameters that any operation of a recording reads."""
    return {
        v.name.removeprefix("parameter ")
        for v in record.values
        if v.name.startswith("parameter ") and v.users
    }


SHAPE_ONLY = ("_like", "new_", "sym_")


def depended_on(ends: Iterable[Value], *, without: frozenset[str] = frozenset()) -> set[Value]:
    """What the ends are computed from by numbers, not by shape alone; those in `without` pass nothing."""
    found: set[Value] = set()
    todo = list(ends)
    while todo:
        value = todo.pop()
        if value in found:
            continue
        found.add(value)
        op = value.op
        if op is None or op.name in without or any(part in op.name for part in SHAPE_ONLY):
            continue
        todo.extend(op.inputs)
    return found


# Used in products


@dataclass(frozen=True, eq=False)
class InProduct:
    """A parameter as one operand of a matrix product: how many numbers are summed, and what it meets."""

    name: str
    op: Op
    weight: Value
    data: Value
    fan_in: int


def in_products(record: Recording) -> list[InProduct]:
    """Every product of a leaf parameter (perhaps turned or cut) with something that comes from the inputs."""
    found: list[InProduct] = []
    for op in record.ops:
        operands = factors(op)
        if operands is None:
            continue
        for mine, other in (operands, operands[::-1]):
            leaf = behind_moves(mine)
            if (
                leaf.op is None
                and leaf.name.startswith("parameter ")
                and leaf.tensor.dim() >= 2
                and other.sources
            ):
                fan_in = operands[0].shape[-1]
                found.append(InProduct(leaf.name.removeprefix("parameter "), op, mine, other, fan_in))
    return found


def factors(op: Op) -> tuple[Value, Value] | None:
    """The two factors of a matrix product, in order; None for any other operation."""
    if op.name not in PRODUCTS or len(op.inputs) < 2:
        return None
    # addmm and its kin have the summand first
    pair = op.inputs[1:3] if op.name.startswith("add") or op.name.startswith("badd") else op.inputs[:2]
    return (pair[0], pair[1]) if len(pair) == 2 else None


def behind_moves(value: Value) -> Value:
    """The value behind views, transposes and copies."""
    while value.op is not None and (value.op.moves or value.op.name == "update") and value.op.inputs:
        value = value.op.inputs[0]
    return value


def heads_of(logits: Value) -> set[Op]:
    """The products that become the logits by moves and element-wise steps alone: the output layer."""
    found: set[Op] = set()
    seen: set[Value] = set()
    todo = [logits]
    while todo:
        value = todo.pop()
        op = value.op
        if value in seen or op is None:
            continue
        seen.add(value)
        if factors(op) is not None:
            found.add(op)
        elif op.moves or op.pointwise or "softmax" in op.name or op.name == "update":
            todo.extend(op.inputs)
    return found


# Drawn


@dataclass(frozen=True)
class Drawn:
    """The distribution of a weight: root mean square, mean, whether all are equal, whether independent."""

    rms: float
    mean: float
    is_constant: bool
    is_random: bool


def drawn(weight: Tensor) -> Drawn:
    """How a weight was drawn. Independent: rows differ in size, and neighbours agree, only by chance.

    A trained weight has rows of very different size, a fixed table has neighbours alike: neither is random.
    """
    flat = weight.detach().flatten(1) if weight.dim() >= 2 else weight.detach()[None]
    table = flat[:SAMPLE, :SAMPLE].double()
    if not table.numel():
        return Drawn(0.0, 0.0, True, False)
    rms, mean = math.sqrt(float(table.square().mean())), float(table.mean())
    if float(table.max()) == float(table.min()):
        return Drawn(rms, mean, True, False)
    centred = table - mean
    squares = centred.square()
    variance = float(squares.mean())
    kurtosis = float(squares.square().mean()) / variance**2
    rows, columns = table.shape
    is_random = kurtosis < 5 and min(rows, columns) >= 4
    for axis, others, count in ((1, columns, rows), (0, rows, columns)):
        spread = float(squares.mean(axis).std()) / variance
        expected = math.sqrt(max(kurtosis - 1, 0.1) / others)
        is_random = is_random and spread < expected * (1 + 4 / math.sqrt(count))
        pair = (centred.narrow(axis, 1, others - 1) * centred.narrow(axis, 0, others - 1)).mean() / variance
        is_random = is_random and abs(float(pair)) < 5 / math.sqrt(table.numel())
    return Drawn(rms, mean, False, is_random)


def written_at(probe: Probe, tensor: Tensor, *, ops: tuple[str, ...] = ()) -> tuple[Place, str] | None:
    """The last line that gave a tensor its numbers, and the operation; `ops`: only operations of these names.

    Views and attribute assignments write nothing. None where nobody watched.
    """
    if probe.making is None:
        return None
    for place, op in probe.making.tensor(tensor):
        name = op.split(".")[1] if op.count(".") else op
        gives = name.endswith("_") or name in {
            "clone",
            "_to_copy",
            "mul",
            "add",
            "div",
            "full",
            "ones",
            "zeros",
        }
        gives = gives or name.startswith(("rand", "normal", "cat", "stack"))
        if (name in ops if ops else gives) and name not in {"requires_grad_", "detach_"}:
            return place, name
    return None


def are_equal(a: Tensor, b: Tensor) -> bool:
    """The same numbers in the same shape."""
    return a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and bool(torch.equal(a, b))
