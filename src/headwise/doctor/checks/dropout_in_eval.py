"""Run the same batch twice in eval mode from different random numbers: nothing may differ."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.probe import Moved, Probe
from headwise.doctor.trace import Op


@check(
    id="HW706",
    title="Dropout (or other noise) is active in eval mode",
    why="The same input gets another answer each time: validation is noisy, and decoding suffers.",
    fix="Pass the training flag: F.dropout(x, p, self.training), dropout_p=self.p if self.training else 0.0.",
    needs={"finite"},
    explains={"cache-mismatch", "batch-changes-answer", "left-padding-changes-answer"},
    quick=True,
)
def dropout_in_eval(probe: Probe) -> Iterator[Found | Tried]:
    moved = Moved(probe.base, probe.run(probe.batch, seed=1), probe.eps)
    if not bool(moved.logits.any()):
        yield Tried("ran the batch twice in eval mode from different random numbers")
        return
    if bool(Moved(probe.base, probe.run(probe.batch), probe.eps).logits.any()):
        raise NotApplicable(
            "the same batch from the same random numbers gives other outputs too: the model keeps something "
            "between its calls"
        )
    op = _first(probe, moved)
    lines = callers(op) if op is not None else []
    place = lines[0] if lines else None
    gap = moved.logits_by
    most = float(gap[torch.isfinite(gap)].max())
    yield Found(
        f"in eval mode the same batch gave outputs that differ by up to {most:.2g} "
        f"(rounding: {64 * probe.eps:.0e})",
        at=place,
        module=op.module if op is not None else "",
        related=tuple(related(lines[1:2], "called from here", place)),
    )


def _first(probe: Probe, moved: Moved) -> Op | None:
    """The first operation whose result differs and none of whose operands do."""
    for op in probe.base.record.ops:
        if any(bool(moved(out).any()) for out in op.outputs if out.tensor.is_floating_point()):
            return op
    return None
