"""Pad a row on the left, as prompts are: its words must get the scores, and the choice, of the row alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import applied_at, origin, related
from headwise.doctor.check import Found, NotApplicable, Severity, Tried, check
from headwise.doctor.decoding import (
    apart,
    calling_line,
    decode,
    first_parting,
    prompt_length,
    refuse_chance,
    text_of,
)
from headwise.doctor.positions import in_library
from headwise.doctor.probe import Probe
from headwise.doctor.runner import is_finite
from headwise.doctor.shifting import shifted
from headwise.doctor.sites import Site


@check(
    id="HW802",
    title="Padding on the left changes the answer",
    why="A short prompt is continued otherwise in a batch with longer ones than alone.",
    fix="Hide the padding as keys, and count positions from the first word: give mask and positions at every "
    "step.",
    severity="error",
    needs={"decoder", "tokens", "padding", "rows", "sequence", "finite"},
    explains={"positions-count-padding"},
)
def left_padding_changes_answer(probe: Probe) -> Iterator[Found | Tried]:
    assert probe.main is not None
    pad = probe.given.batch.padding(probe.main)
    if pad is None or not bool(pad[:, 0].any()) or bool(pad[:, -1].any()):
        raise NotApplicable("no row of the batch is padded on the left")
    refuse_chance(probe.base.record)
    if not is_finite(probe.given.logits):
        raise NotApplicable("the logits of the batch are not finite (see fully-masked-row-nan)")
    if probe.length < 5:
        raise NotApplicable("the batch is too short to be padded")
    found = _forward(probe)
    yield found
    if isinstance(found, Tried) and probe.subject.generate is not None and probe.pad_id is not None:
        yield _generate(probe)


def _forward(probe: Probe) -> Found | Tried:
    assert probe.main is not None
    length = probe.length
    short = length - 2
    lengths = [length if row == 0 else short for row in range(probe.batch.rows)]
    padded = probe.run(probe.batch.padded(probe.main, lengths, left=True))
    try:  # a padded row holds the last words of the filled one
        words = probe.batch.read(probe.main)[:, 2:]
        cut = probe.batch.cut({stream.name: short for stream in probe.adapted.streams})
        alone = probe.run(cut.write(probe.main, words))
    except Exception as error:
        raise NotApplicable("the model takes texts of one length only") from error
    mine = probe.rows_first(padded.logits)[1, -short:]
    own = probe.rows_first(alone.logits)[1]
    by = apart(probe, mine, own)
    if by == 0:
        return Tried(f"a row of {short} words padded on the left to {length}")
    site = next(iter(probe.sites_of("causal")), None)
    tested = shifted(probe, probe.main, left=True)
    made = [line for _, mask in site.masks for line in origin(probe, mask)] if site is not None else []
    place = applied_at(site) if site is not None else None
    fixed = tested is not None and tested.shift is not None and tested.shift.is_fixed
    if fixed and probe.subject.generate is not None:
        return Tried(f"the forward pass takes rows of {length} or more, padded, as the table of positions is")
    if tested is not None and tested.shift is not None:  # the positions are to blame before the mask is
        place, made = tested.shift.at, [tested.shift.added.op.place, place]
    return Found(
        f"{short} words padded on the left to {length} get scores that differ by {by:.2g} of their spread "
        "from those they get alone",
        at=place,
        module=site.module if site is not None else "",
        related=tuple(related(made, "mask or positions are made here", place)),
        severity="note" if fixed else _severity(probe, site),
    )


def _severity(probe: Probe, site: Site | None) -> Severity | None:
    """Without generate nobody says that such rows are continued; a library leaves positions to its caller."""
    if probe.subject.generate is None:
        return "note" if site is not None and in_library(site.product) else "warning"
    return None


def _generate(probe: Probe) -> Found | Tried:
    count = prompt_length(probe)
    if count < 4 or probe.pad_id is None:
        raise NotApplicable("the batch is too short for padded prompts")
    text = text_of(probe)[:, :count]
    prompts = text.clone()
    prompts[1:, :2] = probe.pad_id
    together = decode(probe, prompts)
    alone = decode(probe, text[1:2, 2:])
    if not together.choices or not alone.choices:
        return Tried("generate shows no choice of tokens by scores")
    start = count - 2
    for step, ((op, mine), (_, own)) in enumerate(zip(together.choices, alone.choices, strict=False)):
        by = apart(probe, mine[1:2], own)
        if by > 0:
            parting = first_parting(probe, together.record, alone.record, 1, len(prompts))
            inside = [o for o in together.record.ops if o.modules and o.index < op.index]
            place = calling_line(probe, inside[-1] if inside else parting or op)
            return Found(
                f"generate chooses new token {step + 1} of a prompt of {start} words, padded on the left to "
                f"{count}, by scores that differ by {by:.2g} of their spread from those without padding; the "
                "pass on such a batch itself is right",
                at=place,
                related=tuple(related([op.place], "the token is chosen here", place)),
            )
        chosen = together.ids[1, count + step : count + step + 1]
        if not torch.equal(chosen, alone.ids[0, start + step : start + step + 1]):
            break
    return Tried(f"a prompt of {start} words padded on the left to {count} continued as alone")
