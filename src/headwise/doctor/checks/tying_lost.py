"""Look for two tables with the same random numbers that are not one tensor, and for ties that were undone."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Iterator

from torch import Tensor, nn

from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, Place, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.weights import (
    are_equal,
    behind_moves,
    class_of,
    drawn,
    factors,
    heads_of,
    named,
    parents,
    written_at,
)

COPIES = ("clone", "copy_", "_to_copy")


@check(
    id="HW608",
    title="Two tables meant to be tied are two tensors",
    why="They start alike and drift apart: twice the weights, and none of what tying is for.",
    fix="Assign the parameter itself: head.weight = embedding.weight, after every initialisation, "
    "without clone or copy.",
    severity="warning",
    needs={"run"},
)
def tying_lost(probe: Probe) -> Iterator[Found | Tried]:
    tables, heads = _tables(probe)
    for one in tables:
        for other in [*heads, *(t for t in tables if t > one)]:
            if one == other:
                continue
            a, b = probe.parameter_tensor(one), probe.parameter_tensor(other)
            turned = b.T if a.shape != b.shape and b.dim() == 2 else b
            if (
                a is b
                or not (a.requires_grad and b.requires_grad)
                or not are_equal(a, turned)
                or not drawn(a).is_random
            ):
                continue
            shared = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
            place, made = _copied_at(probe, one, other)
            yield Found(
                f"{one} and {other} {list(b.shape)} hold the same {b.numel():,} random numbers, "
                + ("in the same memory, but are two parameters" if shared else "but are two tensors"),
                at=place,
                module=parents(other),
                related=tuple(related([made], "the other table is made here", place)),
                severity="note" if shared else None,
            )
    for path, module in named(probe.user_model):
        for line, left, right in ties(type(module)) if class_of(type(module)) == "user" else ():
            a, b = _tensor(module, left), _tensor(module, right)
            if a is None or b is None or a is b or a.shape != b.shape:
                continue
            place = Place(inspect.getfile(type(module)), line, f"{type(module).__qualname__}.__init__")
            later = [constructed(probe, parents(f"{path}.{name}".lstrip("."))) for name in (left, right)]
            yield Found(
                f"self.{left} was assigned self.{right} here, and now they are two tensors: one was "
                "replaced afterwards",
                at=place,
                module=path,
                related=tuple(related(later, "made here", place)),
            )
    yield Tried(f"compared {len(tables)} tables with {len(heads)} weights of the output layer")


def _tables(probe: Probe) -> tuple[list[str], list[str]]:
    """Names of the tables that ids are looked up in, and of the weights that make the logits."""
    record = probe.base.record
    tables: list[str] = []
    for op in record.ops:
        if op.name == "embedding" and op.inputs[1].sources:
            leaf = behind_moves(op.inputs[0])
            if leaf.name.startswith("parameter "):
                tables.append(leaf.name.removeprefix("parameter "))
    heads: list[str] = []
    for op in sorted(heads_of(probe.base.logits_value), key=lambda each: each.index):
        leaves = [behind_moves(v) for v in factors(op) or ()]
        heads.extend(v.name.removeprefix("parameter ") for v in leaves if v.name.startswith("parameter "))
    return list(dict.fromkeys(tables)), list(dict.fromkeys(heads))


def _copied_at(probe: Probe, one: str, other: str) -> tuple[Place | None, Place | None]:
    """The line that copied one table to the other, and where the copy's layer was constructed."""
    for name in (other, one):
        written = written_at(probe, probe.parameter_tensor(name))
        if written is not None and written[1] in COPIES:
            return written[0], constructed(probe, parents(name)) if parents(name) else None
    return (constructed(probe, parents(other)) if parents(other) else None), None


def _tensor(module: nn.Module, path: str) -> Tensor | None:
    held: object = module
    for part in path.split("."):
        held = getattr(held, part, None)
    return held if isinstance(held, nn.Parameter) else None


@functools.lru_cache(maxsize=256)
def ties(kind: type) -> tuple[tuple[int, str, str], ...]:
    """Unconditional `self.a.weight = self.b.weight` in a class's constructor: the line, and both paths."""
    try:
        lines, first = inspect.getsourcelines(kind)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return ()
    found: list[tuple[int, str, str]] = []
    for method in tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else ():
        if not isinstance(method, ast.FunctionDef) or method.name != "__init__" or not method.args.args:
            continue
        me = method.args.args[0].arg + "."
        for node in method.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                left, right = ast.unparse(node.targets[0]), ast.unparse(node.value)
                is_tie = all(side.startswith(me) and side.endswith(".weight") for side in (left, right))
                if is_tie and left.replace(".", "").isidentifier() and right.replace(".", "").isidentifier():
                    found.append((first + node.lineno - 1, left.removeprefix(me), right.removeprefix(me)))
    return tuple(found)
