"""The line is where the mistake was written, not only where it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from headwise.doctor.adapt import flatten
from headwise.doctor.calls import Call, calls
from headwise.doctor.check import Place
from headwise.doctor.made import assigned_at
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.trace import Op, Value, recording
from headwise.doctor.untouched import default_dtype, seed_everything

MAKERS = {
    "arange", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like", "empty", "triu", "tril", "eq",
    "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or", "bitwise_not", "logical_and", "logical_or",
    "logical_not",
}  # fmt: skip


@runtime_checkable
class Taint(Protocol):
    """Bits by value index: Probe.rows_seen, Probe.positions_seen."""

    def get(self, index: int, /) -> Tensor | None: ...


def first_mix(probe: Probe, taint: Taint, allowed: Callable[[Value], Tensor | None]) -> Op | None:
    """The first operation whose result shows an influence that it must not, and whose operands do not.

    taint: bits by value index (Probe.rows_seen, Probe.positions_seen). allowed(value): the bits that each
    element may have, None where that cannot be told from the shape; such values are passed over, and an
    operation is traced back through them to where the influence came in.
    """
    wrong: dict[Value, bool | None] = {}
    for op in probe.base.record.ops:
        for out in op.outputs:
            held = taint.get(out.index)
            if held is None:
                wrong[out] = False
                continue
            may = allowed(out)
            wrong[out] = None if may is None else bool((held & ~may).any())
            if wrong[out]:
                return _where_in(op, wrong)
    return None


def _where_in(op: Op, wrong: dict[Value, bool | None]) -> Op:
    """Back through operands of which nothing can be told, to one that reads only what is known good."""
    seen: set[Op] = set()
    while op not in seen:
        seen.add(op)
        unknown = [v.op for v in op.inputs if v.op is not None and wrong.get(v) is None and v in wrong]
        if not unknown:
            break
        op = min(unknown, key=lambda each: each.index)
    return op


def leaking_op(probe: Probe) -> Op | None:
    """Where the future first reaches a position of the main stream, by influence; None if it never does."""
    main = probe.main
    assert main is not None
    length = probe.length

    def may(value: Value) -> Tensor | None:
        axes = probe.axes(value)
        if axes.count("T") != 1:
            return None
        past = torch.tensor([(1 << (t + 1)) - 1 for t in range(length)], device=value.tensor.device)
        shape = [1] * len(axes)
        shape[axes.index("T")] = length
        return past.view(shape).expand(value.shape)

    return first_mix(probe, probe.positions_seen(main), may)


def mixing_op(probe: Probe) -> Op | None:
    """Where two rows of the batch first meet: an element that more than one row moves."""
    taint = probe.rows_seen
    for op in probe.base.record.ops:
        for out in op.outputs:
            held = taint.get(out.index)
            if held is not None and bool((held & (held - 1)).any()):  # more than one bit
                return op
    return None


def mask_at(site: Site) -> tuple[Op, Value] | None:
    """The last operation that masks the scores of a site, and the mask it takes."""
    masks = site.masks
    return masks[-1] if masks else None


def applied_at(site: Site) -> Place | None:
    """The line where a site's mask is put on its scores; the softmax's line where there is none."""
    found = mask_at(site)
    return (found[0].place if found else None) or site.softmax.place


def origin(probe: Probe, value: Value) -> list[Place]:
    """The user's lines that made a tensor such as a mask, the last first: as recorded, then from the making.

    A tensor that existed before the run (a buffer, an input) is looked up in the record of the making.
    """
    read = {f"input {stream.leaf}" for stream in probe.adapted.streams}  # padding masks come from the ids
    places: list[Place] = []
    seen: set[Value] = set()
    todo = [value]
    while todo:
        current = todo.pop(0)
        if current in seen:
            continue
        seen.add(current)
        op = current.op
        if op is None:
            places.extend(made_places(probe, current))
            continue
        if op.place is not None and op.place not in places:
            places.append(op.place)
        todo.extend(each for each in op.inputs if not each.trained and each.name not in read)
    return places


def maker(probe: Probe, value: Value) -> Place | None:
    """The line that made a mask: the last one of the user's that computes it rather than passes it on."""
    todo, seen = [value], set[Value]()
    while todo:
        current = todo.pop(0)
        if current in seen:
            continue
        seen.add(current)
        if current.op is None:
            found = made_places(probe, current)
            if found:
                return found[0]
            continue
        if current.op.name in MAKERS and current.op.place is not None:
            return current.op.place
        todo.extend(current.op.inputs)
    return None


def made_places(probe: Probe, leaf: Value) -> list[Place]:
    """Where a leaf (parameter, buffer, input, target) was made, from the record of the making."""
    if probe.making is None:
        return []
    kind, _, name = leaf.name.partition(" ")
    try:
        if kind in {"parameter", "buffer"}:
            tensor = probe.parameter_tensor(name)
        elif kind == "input":
            tensor = flatten(probe.adapted.handed.inputs)[int(name)]
        elif kind == "targets":
            tensor = probe.adapted.handed.targets
        else:
            return []
    except (KeyError, IndexError, ValueError):
        return []
    return [place for place, _ in probe.making.tensor(tensor)]


def constructed(probe: Probe, path: str) -> Place | None:
    """The line where a module was constructed: recorded, or found in the source of the module that holds it.

    Walks outwards to the first module that was made on a line of the user's.
    """
    parts = path.split(".") if path else []
    for end in range(len(parts), 0, -1):
        here = ".".join(parts[:end])
        module = probe.module_at(here)
        if probe.making is not None:
            place = probe.making.module(module)
            if place is not None:
                return place
        place = assigned_at(probe.module_at(".".join(parts[: end - 1])), parts[end - 1])
        if place is not None:
            return place
    return None


def watched(probe: Probe) -> list[Call]:
    """Every call of a user's function in the base run: what tensors it was given, which operations it ran."""
    model = probe.model.eval()
    leaves = probe._leaves(probe.batch)  # pyright: ignore[reportPrivateUsage]
    seed_everything()
    with (
        torch.no_grad(),
        default_dtype(probe.dtype),
        recording(model, leaves) as record,
        calls(record) as found,
    ):
        probe.adapted.call(model, leaves)
    same = probe.base.record.values
    for call in found:  # the same values, in the base run
        call.given = {name: same[v.index] for name, v in call.given.items() if v.index < len(same)}
    return found


def dropped_in(probe: Probe, value: Value) -> Call | None:
    """The innermost call that was given a tensor (or a view of it): where it fell, if nothing reads it."""
    family = _views(value)
    got = [call for call in watched(probe) if any(v in family for v in call.given.values())]
    return max(got, key=lambda call: (call.depth, call.first)) if got else None


def _views(value: Value) -> set[Value]:
    """A value with everything that only re-arranges it, both ways."""
    found = {value}
    todo = [value]
    while todo:
        current = todo.pop()
        near: list[Value] = []
        if current.op is not None and current.op.moves:
            near.extend(current.op.inputs)
        for op in current.users:
            if op.moves:
                near.extend(op.outputs)
        for each in near:
            if each not in found:
                found.add(each)
                todo.append(each)
    return found


def line_in(op: Op, function: Place) -> Place | None:
    """The line at which a function of the user's was, when an operation inside it ran."""
    for frame in op.frames:
        if frame.place.file == function.file and frame.place.function == function.function:
            return frame.place
    return None


def callers(op: Op) -> list[Place]:
    """The user's lines from the operation outwards, own files first."""
    own = [frame.place for frame in op.frames if not frame.library]
    return own or [frame.place for frame in op.frames]


def related(
    places: Iterable[Place | None], role: str, but: Place | None = None
) -> Iterator[tuple[Place, str]]:
    """Lines as related lines of a finding, without repeats and without the primary one."""
    seen = {(but.file, but.line)} if but is not None else set[tuple[str, int]]()
    for place in places:
        if place is not None and (place.file, place.line) not in seen:
            seen.add((place.file, place.line))
            yield place, role
