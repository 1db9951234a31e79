"""Is a row of an attention map one token? Not where heads were cut across time instead of features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.doctor.heads import marked, projections
from headwise.doctor.sites import Site
from headwise.doctor.trace import Recording, Value

MOST = 1_000_000  # elements of a projection that are marked: beyond it nothing is claimed


def cut_across_time(record: Recording, sites: Sequence[Site]) -> list[Site]:
    """The sites in one of whose heads the rows of queries or keys are not one position each.

    Every vector of the projection is marked, and followed to the head: a head that is cut rightly has each
    position once. The pass is of one row of the batch. Nothing is claimed of what cannot be followed.
    """
    return [
        site
        for site in sites
        if _is_scrambled(record, site.q_value, site.q_at) or _is_scrambled(record, site.k_value, site.k_at)
    ]


def _is_scrambled(record: Recording, value: Value, at: Tensor) -> bool:
    made = projections(value)
    rows = at.shape[1]
    if len(made) != 1 or rows < 3 or made[0].count < 3 or made[0].out.tensor.numel() > MOST:
        return False
    eps = torch.finfo(value.tensor.dtype).eps
    try:
        came = marked(record, {made[0].out: made[0].vectors()}, [value], eps)[0]
    except (RuntimeError, TypeError, ValueError, KeyError):  # an operation that cannot be run again alone
        return False
    lines = Site.take(came, at).transpose(1, 2).flatten(0, 1)
    lines = lines[(lines >= 0).all(-1)]
    if not lines.numel():
        return False
    ordered = lines.sort(-1).values
    different = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(-1)
    return bool(((different > 1) & (different < min(rows, made[0].count))).any())
