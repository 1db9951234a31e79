"""Change what stands at the pads and follow it: no sum, mean or choice over time may take it into the answer."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.padding import Padded, padded
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Op, Value

POOLS = {"mean", "sum", "amax", "max", "min", "amin", "select", "slice", "logsumexp", "index", "gather", "var_mean"}


@check(
    id="HW113",
    title="Padding is pooled into the answer",
    why="The mean (or the last place) of a padded row is partly padding: an answer changes with its neighbours.",
    fix="Average over real tokens only: (x * keep).sum(1) / keep.sum(1), or take the last real token of each row.",
    needs={"run", "padding", "finite"},
    explains={"batch-changes-answer", "left-padding-changes-answer"},
    quick=True,
)
def padding_pooled(probe: Probe) -> Iterator[Found | Tried]:
    if probe.is_sequence:
        raise NotApplicable("the output has a row for each position: nothing is pooled")
    pass_ = padded(probe)
    stream = next(iter(pass_.pads))
    share = pass_.reaches(stream)
    seen = pass_.of_form("seen", "inverted", "wrong-axis", "weak", "after")
    op = _pooling(pass_, stream) if share and not seen else None
    if op is None:
        yield Tried(f"changed the vectors at the pads ({pass_.what})")
        return
    yield Found(
        f"with other vectors at the pads {share:.0%} of the outputs moved, though no attention sees them: "
        f"'{op.name}' takes them from {list(op.inputs[0].shape)} into {list(op.out.shape)}",
        at=op.place,
        module=op.module,
        related=tuple(related([frame.place for frame in op.frames if not frame.library], "called from here", op.place)),
        severity=None if pass_.in_use else "note",
    )


def _pooling(pass_: Padded, stream: str) -> Op | None:
    """The first operation whose result has no time axis, but elements that move with the pads.

    Only where its operand is clean: everything that moves in it stands at the pads.
    """
    moved = pass_.moved(stream)
    rows, length = pass_.pads[stream].shape
    for op in pass_.run.record.ops:
        if op.name not in POOLS or not op.outputs or op.out not in moved or op.inputs[0] not in moved:
            continue
        before, after = op.inputs[0], op.out
        if rows not in after.shape or length in after.shape or length not in before.shape:
            continue
        if _at_pads_only(pass_, stream, before):
            return op
    return None


def _at_pads_only(pass_: Padded, stream: str, value: Value) -> bool:
    """Does nothing but the pads' own places move in a value [B, T, ...] (or time first)?"""
    pad = pass_.pads[stream]
    there = pass_.moved(stream)[value]
    for way in (pad, pad.T):
        if tuple(there.shape[:2]) == tuple(way.shape):
            return not bool((there.flatten(2).any(-1) & ~way).any()) if there.dim() > 2 else not bool((there & ~way).any())
    return False
