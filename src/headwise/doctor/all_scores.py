"""A model that scores its last position only, until it is called with labels, is called with labels.

`logits = head(x[:, [-1], :])` where no targets were handed over saves work in generation. Nothing that a
check asks of the other positions could be seen there.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from headwise.doctor.adapt import Adapted, Leaf, flatten
from headwise.doctor.batch import Batch
from headwise.doctor.called import Called
from headwise.doctor.own_loss import labels_of
from headwise.doctor.runner import Run, is_large, run_as_it_is
from headwise.doctor.shrink import shrink

MOST = 3  # optional parameters that are tried; models that take more have outputs of their own for everything


@dataclass(frozen=True)
class WithLabels:
    """As a subject's call: the model called with labels, which no score depends on: the ids themselves."""

    name: str
    leaf: int

    def __call__(self, model: Any, *args: Tensor, **named: Tensor) -> Any:
        ids = (list(named.values()) if named else args)[self.leaf]
        return model(*args, **named, **{self.name: ids.clone()})


def with_all_scores(adapted: Adapted, device: str | None = None) -> Adapted:
    """Call the model with labels where only they bring the scores of all positions."""
    subject, main = adapted.subject, adapted.main
    if subject.call is not None or subject.loss is not None or adapted.labels is not None:
        return adapted
    names = _optional(adapted)
    if main is None or not main.is_ids or not names:
        return adapted
    try:
        part = shrink(adapted, is_large(adapted.model))
        if _positions(run_as_it_is(part, device), part) != 1:
            return adapted
    except Exception:
        return adapted
    for name in names:
        try:
            tried = _with_leaf(part, name)
            run = run_as_it_is(tried, device)
        except Exception:
            continue
        count = _positions(run, tried)
        if count == Batch.given(part).length(main) and labels_of(tried, run) is not None:
            note = (
                f"without {name} the model gives the scores of the last position only: "
                f"it was called with ids as {name}, to see those of all"
            )
            call = WithLabels(name, main.leaf)
            return replace(adapted, subject=replace(subject, call=call), notes=(*adapted.notes, note))
    return adapted


def _optional(adapted: Adapted) -> list[str]:
    """The parameters of forward that may be None, and were not given."""
    model = adapted.model
    inputs: Any = adapted.subject.inputs
    is_flat = isinstance(inputs, (Tensor, tuple, list, dict))
    is_flat = is_flat and (isinstance(inputs, Tensor) or len(inputs) == len(adapted.leaves))
    if isinstance(model, Called) or not is_flat:
        return []
    given = {leaf.name for leaf in adapted.leaves}
    parameters = inspect.signature(model.forward).parameters.values()
    free = [p.name for p in parameters if p.default is None and p.name not in given]
    return free if len(free) <= MOST else []


def _with_leaf(adapted: Adapted, name: str) -> Adapted:
    """The same with the ids once more, under this name."""
    assert adapted.main is not None
    leaves = flatten(adapted.subject.inputs)
    names = [leaf.name for leaf in adapted.leaves]
    inputs = {**dict(zip(names, leaves, strict=True)), name: leaves[adapted.main.leaf].clone()}
    return replace(
        adapted,
        subject=replace(adapted.subject, inputs=inputs),
        leaves=(*adapted.leaves, Leaf(name, "ids")),
    )


def _positions(run: Run, adapted: Adapted) -> int | None:
    """Of how many positions there are scores for each row, [B, T, V], [B * T, V] or [B, V]."""
    logits, rows = run.logits, run.batch.rows
    if logits.dim() == 3 and logits.shape[adapted.batch_axis] == rows:
        return logits.shape[1 - adapted.batch_axis]
    if logits.dim() == 2 and logits.shape[0] % rows == 0:
        return logits.shape[0] // rows
    return None
