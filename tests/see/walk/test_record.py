"""The JSON form has the keys that its module describes, and no other."""

from __future__ import annotations

import json
from typing import Any

from headwise.see.walk import record
from headwise.see.walk.walk import trace
from see.walk.test_text import sample
from see.walk.walk_models import Llama, ids

STEP = {
    "name", "kind", "operation", "shape", "axes", "count", "dtype", "held", "params", "flops", "bytes",
    "file", "line", "code", "module", "operations",
}  # fmt: skip
GROUP = {"title", "kind", "times", "modules", "rows"}


def check(rows: list[dict[str, Any]]) -> int:
    steps = 0
    for row in rows:
        assert set(row) == (GROUP if "rows" in row else STEP)
        steps += check(row["rows"]) if "rows" in row else 1
    return steps


def test_keys_are_those_described() -> None:
    walk = trace(Llama(), ids())
    told = json.loads(walk.to_json())
    assert set(told) == {"version", "target", "sizes", "totals", "notes", "failed", "rows"}
    assert set(told["totals"]) == {"parameters", "flops", "bytes", "peak", "peak_at"}
    assert check(told["rows"]) == len(walk.steps)
    assert all(key in (record.__doc__ or "") for key in (*told, *told["totals"], *STEP, *GROUP))


def test_a_failure_and_half_a_surrogate_are_plain_text() -> None:
    told = json.loads(sample("half \ud800").to_json())
    assert set(told["failed"]) == {"file", "line", "code", "module", "message", "operands"}
    assert told["target"] == "half \\ud800" and json.dumps(told).isascii()
