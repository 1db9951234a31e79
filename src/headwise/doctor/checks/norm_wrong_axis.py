"""Change one position's vector before a norm: the norm's result at the other positions must not move."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, constructed, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.follow import indices
from headwise.doctor.norms import Norm, ask, conv_before, is_torchs, like_noise, norms, vectors
from headwise.doctor.probe import Probe


@check(
    id="HW403",
    title="A norm takes its statistics over positions or rows",
    why="Each position's vector depends on others: the future leaks in, and length and padding change it.",
    fix="Take the statistics over the last axis alone, the features: dim=-1, or LayerNorm(d_model).",
    needs={"sites"},
    explains={
        "causal-leak", "causal-missing-in-one-layer", "causal-off-by-one", "padding-attended",
        "padding-pooled", "batch-mixed", "cross-mask-missing", "cross-mask-wrong", "cache-mismatch",
        "left-padding-changes-answer",
        "batch-changes-answer", "mask-not-forwarded", "mask-wrong-axis", "causal-mask-in-encoder",
        "positions-on-batch-axis", "cannot-memorise", "depth-unstable", "norm-formula-wrong",
    },
    quick=True,
)  # fmt: skip
def norm_wrong_axis(probe: Probe) -> Iterator[Found | Tried]:
    asked = [n for n in norms(probe) if n.kind != "batch" and n.entered.trained and not conv_before(n)]
    if not asked:
        raise NotApplicable("no norm of computed values was recognised")
    tried = 0
    for norm in asked:
        mixed = _moved(probe, norm)
        if mixed is None:
            continue
        tried += 1
        moved, others = mixed
        if not moved:
            continue
        statistics = [op.place for op in norm.statistics]
        made = constructed(probe, norm.module) if is_torchs(probe, norm.module) else None
        place = made or next((p for p in statistics if p is not None), None) or norm.place
        lines = [*statistics, *callers(norm.op)]
        yield Found(
            f"changing one position's vector moved the norm's result at {moved} of {others} other positions "
            f"(statistics over {_axes(norm)} of {list(norm.entered.shape)})",
            at=place,
            module=norm.module,
            related=tuple(related(lines, "the norm is applied here", place)),
        )
        return
    yield Tried(f"changed one position's vector before each of {tried} norms")


def _moved(probe: Probe, norm: Norm) -> tuple[int, int] | None:
    """How many other positions move with one, and how many there are; None where positions cannot be told."""
    at = vectors(norm)
    if at is None and norm.out.shape and probe.axes(norm.out)[-1] == "":
        at = indices(norm.out).view(-1, norm.out.shape[-1])
    if at is None or len(at) < 2 or norm.entered.shape != norm.out.shape:
        return None
    noise = like_noise(norm.entered)
    row = next((i for i in range(len(at)) if bool((at[i] > 0).all())), None)
    if row is None:
        return None
    changed = noise.flatten().clone()
    changed[at[row] - 1] = 3 * changed[at[row] - 1].flip(0) + 1
    record = probe.base.record
    gap = (ask(record, norm, noise) - ask(record, norm, changed.view_as(noise))).abs().flatten()
    moved = torch.cat([gap.new_zeros(1), gap])[at].amax(1) > 1e-4
    others = int((at > 0).any(1).sum()) - 1
    return int(moved.sum()) - int(moved[row]), others


def _axes(norm: Norm) -> str:
    """The axes that the statistics run over, as the code gives them."""
    op = norm.statistics[0] if norm.statistics else norm.op
    if norm.kind == "layer":
        count = len(norm.op.args[1])
        return "the last axis" if count == 1 else f"the last {count} axes"
    given = op.args[1] if len(op.args) > 1 else op.kwargs.get("dim")
    if norm.statistics and isinstance(given, (list, tuple)) and given:
        return ("axis " if len(given) == 1 else "axes ") + ", ".join(str(axis) for axis in given)  # pyright: ignore
    return "more than the features"
