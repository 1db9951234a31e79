"""Tell why the model stopped on its batch: the operation, its operands with named axes, the likely cause."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import constructed, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.shape_causes import cause_of
from headwise.doctor.shapes_told import failure_of

LONGEST = 90  # characters of code that are shown


@check(
    id="HW001",
    title="Shapes, ids or types do not fit, and the model stops",
    why="Nothing else can be said of a model that does not run.",
    fix="Make the sizes agree at this line.",
    needs={"failure"},
    quick=True,
)
def shape_mismatch(probe: Probe) -> Iterator[Found | Tried]:
    failure = failure_of(probe)
    if failure is None:
        if isinstance(probe.failure, NotApplicable):
            raise NotApplicable(f"it runs, but there is {probe.failure}")
        raise NotApplicable(
            f"it stops for another reason than shapes: {type(probe.failure).__name__}: {probe.failure}"
        )
    cause = cause_of(probe, failure)
    code = failure.code if len(failure.code) <= LONGEST else failure.code[: LONGEST - 4] + " ..."
    operands = ", ".join(str(operand) for operand in failure.operands)
    words = "" if failure.message in cause.why else f" (torch: {failure.message[:160]})"
    into = f", into {list(failure.target)}" if failure.target else ""
    yield Found(
        f"{code or (failure.op.name if failure.op else 'the call')} fails: "
        f"{operands}{into}{'; ' if operands else ''}"
        f"{cause.why}{words}",
        at=failure.place,
        module=failure.module,
        related=(
            *related([_made(probe, path) for path in cause.related], "it is made here", failure.place),
            *related(failure.callers, "called from here", failure.place),
        ),
        fix=cause.fix,
    )


def _made(probe: Probe, path: str) -> Place | None:
    return constructed(probe, path) if path else None
