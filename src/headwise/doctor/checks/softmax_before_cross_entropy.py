"""Look at what the cross-entropy's log-softmax reads: scores, or probabilities that already sum to one?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from headwise.doctor.blame import callers, constructed, related
from headwise.doctor.check import Found, Tried, check
from headwise.doctor.losses import loss_lines
from headwise.doctor.probe import Probe
from headwise.doctor.weights import behind_moves


@check(
    id="HW501",
    title="The cross-entropy is given probabilities instead of scores",
    why="Softmax is taken twice: gradients shrink, and the loss cannot fall below ln(1 + (V-1)/e).",
    fix="Return the scores of the last linear layer; cross-entropy takes the softmax itself.",
    needs={"loss"},
    explains={"initial-loss-wrong", "cannot-memorise"},
    quick=True,
)
def softmax_before_cross_entropy(probe: Probe) -> Iterator[Found | Tried]:
    record, _, _ = probe.recorded_loss()
    asked = 0
    for op in record.ops:
        if op.name != "_log_softmax" or not op.inputs[0].sources:
            continue
        asked += 1
        dim = int(op.args[1])
        scores = op.inputs[0].tensor
        if scores.shape[dim] < 2 or not _is_distribution(scores, dim):
            continue
        made = behind_moves(op.inputs[0])
        place = callers(made.op)[0] if made.op is not None and callers(made.op) else None
        module = probe.module_at(made.op.module) if made.op is not None and made.op.module else None
        if isinstance(module, nn.Softmax):  # written where it was put into the model
            place = constructed(probe, made.op.module) or place if made.op is not None else place
        total = scores.sum(dim)
        least, most = float(scores.min()), float(scores.max())
        yield Found(
            f"what the cross-entropy reads lies in [{least:.2g}, {most:.2g}] and "
            f"sums to {float(total.min()):.4f} in every row, over {scores.shape[dim]} classes",
            at=place,
            module=made.op.module if made.op is not None else "",
            related=tuple(related(loss_lines(probe)[-1:], "the loss takes the softmax again here", place)),
        )
        return
    yield Tried(f"looked at what {asked} log-softmax of the loss read")


def _is_distribution(scores: torch.Tensor, dim: int) -> bool:
    total = scores.sum(dim)
    return bool((scores >= 0).all()) and bool(((total - 1).abs() < 1e-4).all())
