"""What the source says: whose a file is, and where a module's constructor assigns its child.

For a model that was finished before anybody could watch it being made. No torch here.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import linecache
import os
import sysconfig
import textwrap
from collections.abc import Iterator
from typing import Any, Literal, cast

from headwise.doctor.check import Place

Owner = Literal["user", "library", "torch", "python", "doctor"]

_PACKAGES = ("site-packages", "dist-packages")
# Libraries that work for whoever calls them: the line that matters is the caller's.
_SERVANTS = ("torch", "functorch", "torchgen", "numpy", "einops", "opt_einsum", "jaxtyping", "beartype")
_DOCTOR = os.path.dirname(os.path.abspath(__file__)) + os.sep


@functools.cache
def whose(file: str) -> Owner:
    """Whose code a file holds, as Python names it: the user's, a library's, torch's, Python's or ours.

    torch stands for every library that only serves its caller. Cells of notebooks are the user's; other
    names in angle brackets (code that dataclasses or torch.fx wrote) are Python's.
    """
    if file.startswith("<"):
        is_cell = file.startswith("<ipython-input") or (
            file in linecache.cache and "eval_with_key" not in file
        )
        return "user" if is_cell else "python"
    if file.startswith(_DOCTOR):
        return "doctor"
    parts = file.split(os.sep)
    for folder in _PACKAGES:
        if folder in parts:
            package = parts[len(parts) - parts[::-1].index(folder) :]
            return "torch" if package and package[0].removesuffix(".py") in _SERVANTS else "library"
    if file.startswith(_torch()):
        return "torch"
    return "python" if file.startswith(_python()) else "user"


@functools.cache
def _torch() -> tuple[str, ...]:
    """Where torch lies, if not among the packages; found without importing it."""
    spec = importlib.util.find_spec("torch")
    return (os.path.dirname(spec.origin) + os.sep,) if spec and spec.origin else ()


@functools.cache
def _python() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(
        {paths[name] + os.sep for name in ("stdlib", "platstdlib")} | {os.path.dirname(os.__file__) + os.sep}
    )


def assigned_at(parent: object, child: str) -> Place | None:
    """Where the class of `parent` assigns `self.<child>`: its constructor first, then its other methods.

    child: a name, or a path such as 'blocks.0.attention.query'. What stands in a container of a library's
    ('blocks.0') is assigned where the container is. None where the source does not say it.
    """
    owners = [(parent, child)]
    *above, name = child.split(".")
    holder: object = parent
    for depth, part in enumerate(above):
        holder = _child(holder, part)
        if holder is None:
            return None
        owners.append((holder, ".".join([*above[depth + 1 :], name])))
    for owner, rest in reversed(owners):
        place = _assignment(type(owner), rest.split(".")[0])
        if place is not None:
            return place
        if _is_users(type(owner)):
            return None  # made in a way that cannot be read: the container's line would be a guess
    return None


def _child(holder: object, name: str) -> object | None:
    held = cast("dict[str, object]", getattr(holder, "_modules", {}))
    return held[name] if name in held else getattr(holder, name, None)


def _is_users(kind: type) -> bool:
    try:
        return whose(inspect.getfile(kind)) in ("user", "library")
    except (OSError, TypeError):
        return False


def _assignment(kind: type, name: str) -> Place | None:
    for cls in kind.__mro__:
        read = _class(cls) if _is_users(cls) else None
        if read is None:
            continue
        file, first, body = read
        methods = [node for node in body.body if isinstance(node, ast.FunctionDef)]
        for method in sorted(methods, key=lambda node: node.name != "__init__"):
            line = next(_lines(method, name), None)
            if line is not None:
                return Place(file, first + line - 1, f"{cls.__qualname__}.{method.name}")
    return None


@functools.lru_cache(maxsize=256)
def _class(kind: type) -> tuple[str, int, ast.ClassDef] | None:
    """A class's file, its first line there, and its source as a tree."""
    try:
        lines, first = inspect.getsourcelines(kind)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        file = inspect.getfile(kind)
    except (OSError, TypeError, SyntaxError):
        return None
    return (file, first, tree.body[0]) if tree.body and isinstance(tree.body[0], ast.ClassDef) else None


def _lines(method: ast.FunctionDef, name: str) -> Iterator[int]:
    """The lines of a method that give `self` the attribute."""
    me = method.args.args[0].arg if method.args.args else "self"
    for node in ast.walk(method):
        if isinstance(node, ast.Assign):
            targets = [part for target in node.targets for part in _parts(target)]
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target] if node.value is not None else []
        elif isinstance(node, ast.Call) and _registers(node, me, name):
            yield node.lineno
            continue
        else:
            continue
        if any(_is_attribute(target, me, name) for target in targets):
            yield node.lineno


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    """`a, (b, *c) = ...` assigns each of its names."""
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _parts(part)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _is_attribute(target: ast.expr, me: str, name: str) -> bool:
    return (
        isinstance(target, ast.Attribute)
        and target.attr == name
        and isinstance(target.value, ast.Name)
        and target.value.id == me
    )


def _registers(call: ast.Call, me: str, name: str) -> bool:
    """self.add_module("name", ...), self.register_buffer(...), setattr(self, "name", ...)."""
    function, arguments = call.func, list[Any](call.args)
    if isinstance(function, ast.Name) and function.id == "setattr" and len(arguments) == 3:
        return isinstance(arguments[0], ast.Name) and arguments[0].id == me and _says(arguments[1], name)
    registering = ("add_module", "register_module", "register_buffer", "register_parameter")
    return (
        isinstance(function, ast.Attribute)
        and function.attr in registering
        and isinstance(function.value, ast.Name)
        and function.value.id == me
        and bool(arguments)
        and _says(arguments[0], name)
    )


def _says(node: object, name: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == name


def formula_of(place: Place) -> Place | None:
    """Where the value that a line assigns is worked out.

    `x = rate` leads to where `rate` was assigned before it, `x = self.rate(n)` to what that function returns.
    None where the line says nothing of the kind.
    """
    tree = _tree(place.file)
    if tree is None:
        return None
    line = place.line
    for _ in range(4):  # a few steps back; a formula is not hidden deeper
        statement = next(
            (n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.AugAssign) and n.lineno == line),
            None,
        )
        returned = next((n for n in ast.walk(tree) if isinstance(n, ast.Return) and n.lineno == line), None)
        holder = statement or returned
        value = holder.value if holder is not None else None
        further = _definition(tree, value, line) if value is not None else None
        if further is None:
            break
        line = further
    return None if line == place.line else Place(place.file, line, _function_at(tree, line))


def _tree(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None


def _definition(tree: ast.Module, value: ast.expr, line: int) -> int | None:
    """The line that gives a plain name its value, or that a called function of the same file returns from."""
    if isinstance(value, ast.Name):
        inside = [
            f
            for f in ast.walk(tree)
            if isinstance(f, ast.FunctionDef) and f.lineno <= line <= (f.end_lineno or 0)
        ]
        scope: ast.AST = max(inside, key=lambda f: f.lineno) if inside else tree
        lines = [
            n.lineno
            for n in ast.walk(scope)
            if isinstance(n, ast.Assign)
            and n.lineno < line
            and any(isinstance(t, ast.Name) and t.id == value.id for t in n.targets)
        ]
        return max(lines, default=None)
    if isinstance(value, ast.Call):
        name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", None)
        functions = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name == name]
        if len(functions) == 1:
            returns = [n.lineno for n in ast.walk(functions[0]) if isinstance(n, ast.Return) and n.value]
            return returns[-1] if returns else None
    return None


def _function_at(tree: ast.Module, line: int) -> str:
    """The qualified name of the innermost function or class that holds a line."""
    names: list[str] = []
    node: ast.AST = tree
    while True:
        inner = next(
            (
                n
                for n in ast.iter_child_nodes(node)
                if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and n.lineno <= line <= (n.end_lineno or 0)
            ),
            None,
        )
        if inner is None:
            return ".".join(names)
        names.append(inner.name)
        node = inner
