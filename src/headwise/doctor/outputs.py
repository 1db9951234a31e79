"""What a stranger's model gives back, in one form: scores that were flattened, and the scalars beside them.

Many models flatten their logits to [B * T, V] for the cross-entropy and return them so. Which row belongs to
which position is measured, never assumed: change one row of the batch, and see which logits move most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from headwise.doctor.adapt import flatten
from headwise.doctor.trace import Recording, Value

if TYPE_CHECKING:
    from headwise.doctor.probe import Probe

Order = Literal["batch-first", "time-major"]
RESHAPES = {"view", "_unsafe_view", "_reshape_alias", "alias", "clone"}


def flattened(probe: Probe) -> Order | None:
    """The order in which the logits of the user's batch were flattened, None where they were not, or unknown.

    All tokens of the first row are changed. Its own logits move most, since each position reads its token,
    also where a fault lets rows see one another; they must be exactly the rows that one order gives it.
    """
    main, given = probe.main, probe.given
    if main is None or given.logits.dim() != 2:
        return None
    rows, length = given.batch.rows, given.batch.length(main)
    if length < 2 or given.logits.shape[0] != rows * length:
        return None
    if rows == 1:
        return "batch-first"
    where = probe.everywhere(main, given.batch)
    where[0] = True
    after = probe.run(probe.change(main, where, given.batch), record=False).logits
    if after.shape != given.logits.shape:
        return None
    by = (after - given.logits).abs().amax(1).nan_to_num(0.0)
    most, at = by.topk(length)
    if float(most[-1]) <= 0:
        return None
    own = at.sort().values.cpu()
    if torch.equal(own, torch.arange(length)):
        return "batch-first"
    return "time-major" if torch.equal(own, torch.arange(length) * rows) else None


def unflattened(scores: Tensor, order: Order | None, rows: int, length: int, batch_axis: int) -> Tensor:
    """[B * T, V] seen as [B, T, V] (or [T, B, V] where the batch axis is 1); all else as it is."""
    if order is None or scores.dim() != 2 or scores.shape[0] != rows * length:
        return scores
    first = (length, rows) if order == "time-major" else (rows, length)
    cube = scores.view(*first, scores.shape[1])  # one axis can always be cut in two
    return cube if (order == "time-major") == (batch_axis == 1) else cube.transpose(0, 1)


def tensors(output: Any) -> list[Tensor]:
    """The tensors in whatever a model returns, in order: of a tuple, a dict, or an object with attributes."""
    return flatten(output) or flatten(getattr(output, "__dict__", {}))


def scalars(output: Any) -> list[Tensor]:
    """The single numbers among them: a loss, if the model computes its own."""
    return [each for each in tensors(output) if each.dim() == 0 and each.is_floating_point()]


def on_the_way(log: Recording, scores: Value | None, end: Value) -> Value | None:
    """The scores as the loss reads them: a model may return one view of them and take the loss of another."""
    before = log.ancestors([end])
    value = scores
    while value is not None and value not in before:
        op = value.op
        if op is None or op.name not in RESHAPES or op.inputs[0].tensor.numel() != value.tensor.numel():
            return scores
        value = op.inputs[0]
    return value


def slope(scores: Tensor) -> Tensor | None:
    """d loss / d scores after a backward pass; of scores that are a view, what their memory's owner got."""
    if scores.grad is not None:
        return scores.grad
    owner = scores._base  # pyright: ignore[reportPrivateUsage]
    if owner is None or owner.grad is None or owner.numel() != scores.numel() or not owner.is_contiguous():
        return None
    return owner.grad.view(scores.shape) if scores.is_contiguous() else None


def keep_slope(scores: Tensor) -> None:
    """Before a backward pass: let the scores, and the tensor that they may be a view of, keep their slope."""
    owner = scores._base  # pyright: ignore[reportPrivateUsage]
    for each in (scores, owner):
        if each is not None and each.requires_grad:
            each.retain_grad()
