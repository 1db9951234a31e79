"""Cut a row to its own length, and pad it again: its words must keep the positions that they had."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.adapt import Stream
from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.positions import Added, additions, in_library, lookup, made_line
from headwise.doctor.probe import Probe, Run


@check(
    id="HW309",
    title="Padding shifts the positions of the words",
    why="The same sentence gets other positions, and another answer, in a batch with a longer one.",
    fix="Count words only: positions = (keep.cumsum(1) - 1).clamp(min=0), or 0, 1, 2 ... with the padding at "
    "the end.",
    needs={"stream", "rows", "padding", "finite"},
    explains={"left-padding-changes-answer", "batch-changes-answer"},
)
def positions_count_padding(probe: Probe) -> Iterator[Found | Tried]:
    if not bool(torch.isfinite(probe.given.logits).all()):
        raise NotApplicable("the logits of the batch are not finite (see fully-masked-row-nan)")
    tried: list[str] = []
    for stream in probe.adapted.streams:
        given = probe.given.batch.padding(stream)
        own = [added for added in additions(probe) if added.stream == stream and added.is_early and
               (added.varies_in_time or (added.varies_in_batch is False and _counts(added)))]  # fmt: skip
        if given is None or not bool(given.any()) or not own:
            continue
        length = probe.batch.length(stream)
        if length < 4:
            continue
        left = bool(given[:, 0].any()) and not bool(given[:, -1].any())
        short = length - 2 if length > 4 else length - 1
        lengths = [length if row == 0 else short for row in range(probe.batch.rows)]
        padded = probe.run(probe.batch.padded(stream, lengths, left=left))
        kept = probe.batch.padded(stream, lengths, left=left).padding(stream)
        alone = _alone(probe, stream, short)
        if alone is None or kept is None:
            continue
        tried.append(
            f"padded rows of the {stream.name} from {short} to {length} on the {'left' if left else 'right'}"
        )
        for added in own:
            shift = _shift(probe, added, padded, alone, short, left)
            if shift is None or shift < 1e-4:
                continue
            held = lookup(added.table)
            source = held[1] if held is not None and held[1].op is not None else added.table
            place = made_line(probe, source) or added.op.place
            yield Found(
                f"{short} words of the {stream.name}, padded on the {'left' if left else 'right'} to "
                f"{length}: what is added to them as positions differs by {shift:.0%} from what they get "
                "without padding",
                at=place,
                module=added.op.module,
                related=tuple(related([added.op.place], "the positions are added here", place)),
                severity="note" if in_library(added.op) else "warning" if left else None,
            )
            return
    if not tried:
        raise NotApplicable("no padding in the batch, or no position table is added to the tokens")
    yield Tried("; ".join(tried))


def _counts(added: Added) -> bool:
    """Looked up by numbers that the inputs decide (a count of words), though they are all alike here."""
    held = lookup(added.table)
    return held is not None and bool(held[1].sources)


def _alone(probe: Probe, stream: Stream, short: int) -> Run | None:
    """The batch cut to so many positions: nothing is padded."""
    lengths = {each.name: probe.batch.length(each) for each in probe.adapted.streams}
    lengths[stream.name] = short
    if any(probe.batch.read(each).dim() not in {2, 3} for each in probe.adapted.streams):
        return None
    try:
        return probe.run(probe.batch.cut(lengths))
    except Exception:
        return None  # a model of one length


def _shift(probe: Probe, added: Added, padded: Run, alone: Run, short: int, left: bool) -> float | None:
    """How far apart the positions of row 1's words are in the two runs, as a share of the table's size."""
    place = added.op.inputs.index(added.table)
    shown: list[torch.Tensor] = []
    for run in (padded, alone):
        if added.op.index >= len(run.record.ops):
            return None
        op = run.record.ops[added.op.index]
        if (
            op.name != added.op.name
            or len(op.inputs) != 2
            or op.out.tensor.dim() != added.op.out.tensor.dim()
        ):
            return None
        table = op.inputs[place].tensor.expand(op.out.shape)
        shown.append(table.movedim([added.batch_axis, added.time_axis], [0, 1])[1])
    words = shown[0][-short:] if left else shown[0][:short]
    if words.shape != shown[1].shape:
        return None
    return float((words - shown[1]).abs().max() / shown[1].abs().max().clamp(min=1e-12))
