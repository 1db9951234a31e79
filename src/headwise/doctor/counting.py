"""Which line says where counting starts: an arange's own, or the one that gave its first argument a value."""

from __future__ import annotations

import ast
import linecache

from headwise.doctor.check import Place
from headwise.doctor.trace import Op

Function = ast.FunctionDef | ast.AsyncFunctionDef


def start_of(op: Op | None) -> Place | None:
    """The line that decided the start of an arange: read from the source, from its frames outwards.

    A bare name is followed to its assignment in the same function, a parameter to the call that passed it.
    """
    if op is None or op.place is None:
        return None
    frames = [frame.place for frame in op.frames if not frame.library]
    place, wanted = frames[0], "arange"
    position: int | str | None = 0
    for depth, here in enumerate(frames):
        function = _function(here)
        call = _call(here, wanted if depth == 0 else None, position)
        if function is None or call is None:
            return place
        start = _argument(call, position, needs_two=depth == 0)
        if not isinstance(start, ast.Name):
            return here
        assigned = _assigned(function, start.id, here.line)
        if assigned is not None:
            return Place(here.file, assigned, here.function)
        names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args)]
        if start.id not in names:
            return here
        place = here
        position = names.index(start.id) - (1 if names[:1] == ["self"] else 0)
        wanted = start.id
    return place


def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None


def _function(place: Place) -> Function | None:
    tree = _tree(place.file)
    found = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, Function) and node.lineno <= place.line <= (node.end_lineno or node.lineno)
    ]
    return max(found, key=lambda node: node.lineno, default=None)


def _call(place: Place, name: str | None, position: int | str | None) -> ast.Call | None:
    """The call on this line: of that name, or one with an argument at that position."""
    tree = _tree(place.file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Call) and node.lineno <= place.line <= (node.end_lineno or node.lineno):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name is not None and called == name:
                return node
            if name is None and isinstance(position, int) and len(node.args) > position:
                return node
    return None


def _argument(call: ast.Call, position: int | str | None, needs_two: bool) -> ast.expr | None:
    if isinstance(position, int) and len(call.args) > (1 if needs_two else position):
        return call.args[position]
    return None


def _assigned(function: Function, name: str, before: int) -> int | None:
    """The last line before this one in the function that assigns the name."""
    lines = [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.lineno < before
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for leaf in ast.walk(target)
        if isinstance(leaf, ast.Name) and leaf.id == name
    ]
    return max(lines, default=None)
