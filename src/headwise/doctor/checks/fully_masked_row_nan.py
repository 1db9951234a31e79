"""Look for the first operation that makes NaN: a softmax over a row in which everything is hidden."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import applied_at, origin, related
from headwise.doctor.check import Found, NotApplicable, Severity, Tried, check
from headwise.doctor.mask_lines import mask_values
from headwise.doctor.padded import left_padded, padded
from headwise.doctor.probe import Probe, Run
from headwise.doctor.sites import Site, attention_sites


@check(
    id="HW111",
    title="A row with nothing left to see becomes NaN",
    why="Softmax over nothing but -inf is 0/0; in the next layer, or backwards, NaN spreads to all rows.",
    fix="Leave such a row something to see (itself), or fill with torch.finfo(scores.dtype).min instead.",
    needs={"sites"},
    explains={"first-nan", "half-precision-overflow", "cannot-memorise", "left-padding-changes-answer"},
    quick=True,
)
def fully_masked_row_nan(probe: Probe) -> Iterator[Found | Tried]:
    tried = 0
    for run, what, severity in _passes(probe):
        tried += 1
        site = _first_nan(run)
        if site is None:
            continue
        empty = torch.isneginf(site.scores).all(-1)
        place = applied_at(site)
        made = [line for value in mask_values(site) for line in origin(probe, value)]
        yield Found(
            f"{what}: {int(empty.sum())} of {empty.numel()} rows of scores are -inf throughout, and their "
            f"softmax is NaN; it is the first NaN, and {_spread(run)}",
            at=place,
            module=site.module,
            related=tuple(related(made, "the mask is made here", place)),
            severity=severity,
        )
        return
    yield Tried(f"looked for rows with nothing to see in {tried} passes")


def _passes(probe: Probe) -> Iterator[tuple[Run, str, Severity]]:
    """The runs to look at; an error where outputs or gradients that matter are NaN, a note elsewhere."""
    yield probe.base, "without padding", "error"
    try:
        pass_ = padded(probe)
        wrong = bool(pass_.real_outputs().isnan().any()) or (pass_.in_use and _bad_gradients(probe))
        yield pass_.run, "with padded rows", "error" if wrong and pass_.in_use else "note"
        other = left_padded(probe)
        if other is not None and any(sight.form == "hidden" for sight in pass_.sights):
            yield other.run, "with padding on the left", "note"
    except NotApplicable:
        return


def _bad_gradients(probe: Probe) -> bool:
    """Does the user's loss give NaN gradients on the user's batch?"""
    if probe.lacks(frozenset({"loss"})) is not None:
        return False
    grads = probe.gradients().by_parameter.values()
    return any(bool(grad.isnan().any()) for grad in grads if grad is not None)


def _first_nan(run: Run) -> Site | None:
    """The attention whose softmax makes the first NaN of a run, from a row in which everything is hidden."""
    for op in run.record.ops:
        if not any(v.tensor.is_floating_point() and bool(v.tensor.isnan().any()) for v in op.outputs):
            continue
        sites = [site for site in attention_sites(run.record) if op.index <= site.softmax.index]
        site = next((s for s in sites if s.softmax is op or s.scores_value in op.inputs), None)
        if site is None or bool(site.scores.isnan().any()):
            return None
        return site if bool(torch.isneginf(site.scores).all(-1).any()) else None
    return None


def _spread(run: Run) -> str:
    share = float(run.logits.isnan().double().mean())
    return f"{share:.0%} of the outputs are NaN" if share else "the outputs are finite"
