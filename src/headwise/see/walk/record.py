"""The walk as JSON, version 1.

    version     "1"; a key is only ever added within a version
    target      what was walked through
    sizes       {name: size} of the named axes, in order: B, T, S, D, H, Hk, Dh, F, V, C
    totals      {parameters, flops, bytes, peak, peak_at}
    notes       [text]
    failed      null, or {file, line, code, module, message, operands: [text]}
    rows        [row]

A row is a step or a group, told apart by its key `rows`:

    group       {title, kind, times, modules: [path], rows: [row]}
                kind: "section", "block", "attention", "feed-forward",
                "repeat" (steps in no block that come again at once)
    step        {name, kind, operation, shape, axes, count, dtype, held, params, flops, bytes, file, line,
                code, module, operations: [{name, shape, axes, flops, bytes, file, line}]}

`held` is null, or the shape in memory where its axes lie in another order than in `shape`. What stands in a
group that comes `times` times stands there once. Sizes are counts; bytes are bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwise.see.walk.steps import Group, Part, Row, Step

if TYPE_CHECKING:
    from headwise.see.walk.walk import Walk


def to_dict(walk: Walk) -> dict[str, Any]:
    """The walk in JSON's own types."""
    failed = walk.failed
    return {
        "version": walk.version,
        "target": _text(walk.target),
        "sizes": dict(walk.sizes),
        "totals": {
            "parameters": walk.parameters,
            "flops": walk.flops,
            "bytes": walk.bytes,
            "peak": walk.peak,
            "peak_at": _text(walk.peak_at),
        },
        "notes": [_text(note) for note in walk.notes],
        "failed": None
        if failed is None
        else {
            "file": _text(failed.file),
            "line": failed.line,
            "code": _text(failed.code),
            "module": _text(failed.module),
            "message": _text(failed.message),
            "operands": [_text(each) for each in failed.operands],
        },
        "rows": [_row(row) for row in walk.rows],
    }


def _row(row: Row) -> dict[str, Any]:
    if isinstance(row, Group):
        return {
            "title": row.title,
            "kind": row.kind,
            "times": row.times,
            "modules": [_text(path) for path in row.modules],
            "rows": [_row(each) for each in row.rows],
        }
    return _step(row)


def _step(step: Step) -> dict[str, Any]:
    return {
        "name": _text(step.name),
        "kind": step.kind,
        "operation": _text(step.operation),
        "shape": list(step.shape),
        "axes": list(step.axes),
        "count": step.count,
        "dtype": step.dtype,
        "held": list(step.held) if step.held else None,
        "params": step.params,
        "flops": step.flops,
        "bytes": step.bytes,
        "file": _text(step.file),
        "line": step.line,
        "code": _text(step.code),
        "module": _text(step.module),
        "operations": [_part(part) for part in step.parts],
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "name": part.name,
        "shape": list(part.shape),
        "axes": list(part.axes),
        "flops": part.flops,
        "bytes": part.bytes,
        "file": _text(part.file),
        "line": part.line,
    }


def _text(text: str) -> str:
    # a file name may hold bytes that are no text: half a surrogate pair, which is no JSON either
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
