"""Where the gradient is lost: the operation behind which parameters get none, and the line that chose so."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterable
from dataclasses import dataclass

from headwise.doctor.check import Place
from headwise.doctor.trace import Frame, Op, Recording, Value
from headwise.doctor.weights import depended_on

STEPS = frozenset(
    {"round", "floor", "ceil", "trunc", "sign", "sgn", "heaviside", "round_", "floor_", "sign_"}
)


@dataclass(frozen=True)
class Cut:
    """Where parameters lose their gradient: the line, the operation, how, and which parameters."""

    place: Place | None
    how: str
    parameters: tuple[str, ...]
    module: str = ""
    shows: Place | None = None


def parameter_names(values: Iterable[Value]) -> set[str]:
    """The parameters among some values, by path."""
    return {v.name.removeprefix("parameter ") for v in values if v.name.startswith("parameter ")}


def cuts(states: dict[str, str], record: Recording, ends: list[Value]) -> list[Cut]:
    """The operations that lose the gradient of parameters from which the loss is computed.

    states: of each parameter, what `backward.Passed` says of its gradient.
    """
    known = {v.name.removeprefix("parameter "): v for v in record.values if v.name.startswith("parameter ")}
    smooth = parameter_names(depended_on(ends, without=STEPS))
    reach = parameter_names(depended_on(ends))
    lost = [n for n, s in states.items() if n in reach and (s == "none" or (s == "zero" and n not in smooth))]
    found: list[Cut] = []
    todo = {known[name]: name for name in lost if name in known}
    up = depended_on(ends)
    for op in record.ops:
        if not todo:
            break
        stops = [v for v in op.outputs if v in up]
        if not stops or op.name == "update" or any(part in op.name for part in ("_like", "new_")):
            continue
        live = [v for v in op.inputs if v.needs_grad or v.tensor.requires_grad]
        if op.name not in STEPS and (not live or any(v.needs_grad for v in stops) or stops == ends):
            continue
        if op.name in STEPS and not live:
            continue
        behind = depended_on(op.inputs)
        names = tuple(name for value, name in todo.items() if value in behind)
        if names:
            found.append(_cut(op, stops[0], names))
    # of several operations the one that explains most is the cause: the others lie behind it, or beside it
    found.sort(key=lambda cut: -len(cut.parameters))
    return _in_one_block(found)


def _cut(op: Op, out: Value, names: tuple[str, ...]) -> Cut:
    if op.name in {"detach", "detach_"}:
        return Cut(op.place, "detach() takes its result out of the graph", names, op.module)
    if op.name in STEPS:
        return Cut(op.place, f"{op.name}() has derivative zero", names, op.module)
    if not out.tensor.is_floating_point():
        return Cut(op.place, f"{op.name} gives whole numbers, which have no derivative", names, op.module)
    if out.tensor.requires_grad and out.users:  # the tensor itself could: what was read is its bare data
        user = out.users[0]
        return Cut(
            user.place or op.place, ".data takes its result out of the graph", names, op.module, op.place
        )
    block = next((b for f in op.frames if not f.library and (b := _no_grad_line(f)) is not None), None)
    if block is None:
        return Cut(op.place, f"no gradient is recorded at {op.name}", names, op.module)
    return Cut(block, "it runs where gradients are switched off", names, op.module, op.place)


def _in_one_block(cuts: list[Cut]) -> list[Cut]:
    """Cuts on one line told as one."""
    by_line: dict[tuple[Place | None, str], Cut] = {}
    for cut in cuts:
        known = by_line.get((cut.place, cut.how))
        names = tuple(dict.fromkeys((*known.parameters, *cut.parameters))) if known else cut.parameters
        by_line[cut.place, cut.how] = Cut(
            cut.place, cut.how, names, (known or cut).module, (known or cut).shows
        )
    return sorted(by_line.values(), key=lambda cut: -len(cut.parameters))


def _no_grad_line(frame: Frame) -> Place | None:
    """The `with torch.no_grad():` (or decorator) around a line, as the source says it."""
    for first, last, line in _no_grad_blocks(frame.place.file):
        if first <= frame.place.line <= last:
            return Place(frame.place.file, line, frame.place.function)
    return None


@functools.lru_cache(maxsize=64)
def _no_grad_blocks(file: str) -> tuple[tuple[int, int, int], ...]:
    """First and last line of each block without gradients, and the line that opens it; inner ones first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    found: list[tuple[int, int, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            switches = [item.context_expr for item in node.items]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            switches = list(node.decorator_list)
        else:
            continue
        for switch in switches:
            if any(
                word in ast.unparse(switch)
                for word in ("no_grad", "inference_mode", "set_grad_enabled(False")
            ):
                found.append((node.lineno, node.end_lineno or node.lineno, switch.lineno))
    return tuple(reversed(found))
