"""A part of a large batch: a few rows and positions tell as much as all, in a fraction of time and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.doctor.adapt import Adapted, rebuild
from headwise.doctor.batch import Batch, is_left

MANY, ROWS, LENGTH = 1024, 8, 64  # tokens that are examined whole; else so many rows of so many positions
MANY_LARGE, ROWS_LARGE, LENGTH_LARGE = 64, 3, 16  # for a large model: a recording holds every activation


def shrink(adapted: Adapted, is_large: bool) -> Adapted:
    """The subject with a part of its batch and of its targets, where the batch is large; else as it is.

    Rows with the most padding and with the least are taken first. Targets must be none, or a tensor whose
    axes can be told: labels of rows [B] or of positions [B, T].
    """
    streams, targets = adapted.streams, adapted.subject.targets
    if not streams or not (targets is None or isinstance(targets, Tensor)):
        return adapted
    batch = Batch.given(adapted)
    many, rows, length = (MANY_LARGE, ROWS_LARGE, LENGTH_LARGE) if is_large else (MANY, ROWS, LENGTH)
    lengths = {stream.name: batch.length(stream) for stream in streams}
    if batch.rows * max(lengths.values()) <= many or any(batch.read(s).dim() not in {2, 3} for s in streams):
        return adapted
    main = streams[-1]
    short = {name: min(size, length) for name, size in lengths.items()}
    last = frozenset(s.name for s in streams if (pad := batch.padding(s)) is not None and is_left(pad))
    chosen = _rows(batch, short, last, rows)
    part = batch.take_rows(chosen).cut(short, last)
    goal: Any = targets
    if isinstance(targets, Tensor):
        axis = adapted.batch_axis if targets.dim() > 1 else 0
        if targets.dim() == 0 or targets.shape[axis] != batch.rows:
            return adapted
        goal = targets.index_select(axis, torch.tensor(chosen, device=targets.device))
        if targets.dim() >= 2:
            if targets.shape[1 - axis] != lengths[main.name]:
                return adapted
            start = lengths[main.name] - short[main.name] if main.name in last else 0
            goal = goal.narrow(1 - axis, start, short[main.name])
        goal = goal.clone()
    inputs = rebuild(adapted.subject.inputs, list(part.leaves))
    return replace(
        adapted, subject=replace(adapted.subject, inputs=inputs, targets=goal), whole=adapted.subject
    )


def _rows(batch: Batch, lengths: dict[str, int], last: frozenset[str], most: int) -> list[int]:
    """Rows of the part: by turns those with the most padding in it and those with the least."""
    count = batch.rows
    if count <= most:
        return list(range(count))
    pads = torch.zeros(count)
    for stream in batch.adapted.streams:
        found = batch.padding(stream)
        if found is not None:
            size = lengths[stream.name]
            pads += (found[:, -size:] if stream.name in last else found[:, :size]).float().sum(1).cpu()
    order = sorted(range(count), key=lambda row: (-float(pads[row]), row))
    taken = [order[place // 2] if place % 2 == 0 else order[-1 - place // 2] for place in range(most)]
    return sorted(taken)
