"""Change what stands at the pads and follow it: no mean, sum or choice over time may take it in."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.padded import padded
from headwise.doctor.padding import Padded
from headwise.doctor.probe import Probe
from headwise.doctor.sites import SOFTMAXES
from headwise.doctor.trace import Op, Value

POOLS = {
    "mean",
    "sum",
    "amax",
    "max",
    "min",
    "amin",
    "select",
    "slice",
    "logsumexp",
    "index",
    "gather",
    "var_mean",
}


@check(
    id="HW113",
    title="Padding is pooled into the answer",
    why="The mean (or the last place) of a padded row is partly padding, how much depends on its neighbours.",
    fix="Average over real tokens: (x * keep).sum(1) / keep.sum(1), or take the last real token of each row.",
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
    seen = [s for s in pass_.of_form("seen", "inverted", "wrong-axis", "weak", "after") if not s.pools]
    op = _pooling(pass_, stream) if share and not seen else None
    if op is None:
        yield Tried(f"changed the vectors at the pads ({pass_.what})")
        return
    yield Found(
        f"with other vectors at the pads {share:.0%} of the outputs moved, though no attention sees them: "
        f"'{op.name}' takes them from {list(op.inputs[0].shape)} into {list(op.out.shape)}",
        at=op.place,
        module=op.module,
        related=tuple(
            related([frame.place for frame in op.frames if not frame.library], "called from here", op.place)
        ),
        severity=None if pass_.in_use else "note",
    )


def _pooling(pass_: Padded, stream: str) -> Op | None:
    """The first operation that takes what stands at the pads into a sum, a choice or weights over time.

    Only where its operand is clean: everything that moves in it stands at the pads.
    """
    moved, length = pass_.moved(stream), pass_.pads[stream].shape[1]
    for op in pass_.run.record.ops:
        if not op.outputs or op.out not in moved or op.inputs[0] not in moved:
            continue
        before, after = op.inputs[0], op.out
        if op.name in POOLS and length not in after.shape and pass_.pads[stream].shape[0] in after.shape:
            if _at_pads_only(pass_, stream, before):
                return op
        elif op.name in SOFTMAXES and _at_pads_only(pass_, stream, before):
            spread = not _at_pads_only(pass_, stream, after)
            if spread:
                return op
    return None


def _at_pads_only(pass_: Padded, stream: str, value: Value) -> bool:
    """Does nothing but the pads' own places move in a value that has one axis of rows and one of time?"""
    pad = pass_.pads[stream]
    there = pass_.moved(stream)[value]
    axes = [[axis for axis, size in enumerate(there.shape) if size == wanted] for wanted in pad.shape]
    if [len(each) for each in axes] != [1, 1] or axes[0] == axes[1]:
        return False
    by_place = there.movedim((axes[0][0], axes[1][0]), (0, 1)).reshape(*pad.shape, -1).any(-1)
    return not bool((by_place & ~pad).any())
