"""Give a row alone, then among others: its answer must be the same, and so must what generate chooses by."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.batch import Batch
from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.decoding import (
    apart,
    batch_decoding,
    decode,
    first_parting,
    prompt_length,
    refuse_chance,
    text_of,
)
from headwise.doctor.probe import Probe
from headwise.doctor.runner import is_finite


@check(
    id="HW803",
    title="A row's answer depends on the batch it is in",
    why="What was measured on batches does not hold when one question is asked alone.",
    fix="Compute everything that belongs to a row from that row: masks, lengths, penalties, averages.",
    needs={"stream", "rows", "finite"},
)
def batch_changes_answer(probe: Probe) -> Iterator[Found | Tried]:
    refuse_chance(probe.base.record)
    if not is_finite(probe.given.logits):
        raise NotApplicable("the logits of the batch are not finite (see first-nan)")
    forward = _forward(probe)
    if isinstance(forward, Found):
        yield forward
        return
    yield forward
    if probe.subject.generate is None or probe.kind != "decoder":
        return
    yield _generate(probe)


def _forward(probe: Probe) -> Found | Tried:
    """Rows of the user's batch, with their own padding, alone and together."""
    batch = Batch.given(probe.adapted)
    base = probe.given
    if base.logits.dim() == 0:
        raise NotApplicable("the output is one number for the whole batch")
    axis = probe.adapted.batch_axis if base.logits.dim() > 1 and probe.is_sequence else 0
    rows = batch.rows
    if rows < 2 or base.logits.shape[axis] != rows:
        raise NotApplicable("the output has no axis of the batch's rows")
    chosen = sorted({0, 1, rows - 1})
    for row in chosen:
        try:
            alone = probe.run(batch.take_rows([row]))
        except Exception as error:
            raise NotApplicable(f"a batch of one row cannot be run: {type(error).__name__}") from error
        if alone.logits.shape[axis] != 1:
            raise NotApplicable("a batch of one row gives an output of another form")
        by = apart(probe, base.logits.select(axis, row), alone.logits.select(axis, 0))
        if by == 0:
            continue
        op = first_parting(probe, base.record, alone.record, row, rows)
        lines = callers(op) if op is not None else []
        place = lines[0] if lines else None
        return Found(
            f"row {row} alone gives an output that differs by {by:.2g} of its spread from that of the same "
            f"row, with the same padding, in the batch of {rows}",
            at=place,
            module=op.module if op is not None else "",
            related=tuple(related(lines[1:], "called from here", place)),
        )
    return Tried(f"rows {', '.join(map(str, chosen))} alone and in the batch of {rows}")


def _generate(probe: Probe) -> Found | Tried:
    together = batch_decoding(probe)
    rows = together.prompt.shape[0]
    if not together.choices:
        return Tried("generate shows no choice of tokens by scores")
    for row in (0, rows - 1):
        alone = decode(probe, text_of(probe)[row : row + 1, : prompt_length(probe)])
        start = together.prompt.shape[1]
        for step, ((op, mine), (_, own)) in enumerate(zip(together.choices, alone.choices, strict=False)):
            by = apart(probe, mine[row : row + 1], own)
            if by > 0:
                parting = first_parting(probe, together.record, alone.record, row, rows)
                lines = callers(parting or op)
                place = lines[0] if lines else None
                return Found(
                    f"generate chooses new token {step + 1} of row {row} by scores that differ by {by:.2g} "
                    f"of their spread when the same prompt is in a batch of {rows}",
                    at=place,
                    related=tuple(related([*lines[1:], op.place], "the token is chosen here", place)),
                )
            at = start + step
            if (
                at >= min(together.ids.shape[1], alone.ids.shape[1])
                or together.ids[row, at] != alone.ids[0, at]
            ):
                break
    return Tried(f"prompts of rows 0 and {rows - 1} continued alone and in the batch")
