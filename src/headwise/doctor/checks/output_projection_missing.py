"""Follow the heads from where they are mixed to the residual sum: is there no linear layer on the way?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.heads import in_library
from headwise.doctor.merging import merged
from headwise.doctor.probe import Probe


@check(
    id="HW212",
    title="No output projection after the heads",
    why="Each head can write only to its own columns of the residual stream: heads cannot work together.",
    fix="Put a linear layer [H * Dh, D] between the concatenated heads and the residual sum.",
    severity="warning",
    needs={"sites"},
    quick=True,
)
def output_projection_missing(probe: Probe) -> Iterator[Found | Tried]:
    asked = 0
    for group in merged(probe):
        count, way = group.count(probe), group.way
        if count < 2 or (way.last is None and way.added is None):
            continue
        asked += 1
        if way.last is not None or way.added is None or way.entered is None:
            continue
        op = way.entered.op or group.site.mix
        if op.name in {"mul", "mul_", "native_dropout"} and op.inputs[0].op is not None:
            op = op.inputs[0].op
        yield Found(
            f"the outputs of {count} heads reach the residual sum through no linear layer",
            at=op.place,
            module=op.module or group.site.module,
            related=(
                *related([way.added.place], "the residual sum", op.place),
                *related([group.site.mix.place, *callers(op)[1:2]], "the heads come from here", op.place),
            ),
            severity="note" if in_library(op) else None,
        )
        return
    if not asked:
        raise NotApplicable("no attention of several heads that reaches a projection or a residual sum")
    yield Tried(f"followed the heads of {asked} attention(s) to a linear layer")
