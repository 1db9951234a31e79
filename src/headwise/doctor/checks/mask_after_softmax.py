"""Follow the weights from the softmax to the values: nothing may be hidden on the way that was not before."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.masks import LETS_THROUGH, cut_after, later
from headwise.doctor.padded import padded
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site


@check(
    id="HW106",
    title="The mask is applied after the softmax",
    why="Hidden places still take their share of the softmax: rows no longer sum to one.",
    fix="Mask the scores with -inf before the softmax instead of multiplying the weights by zero after it.",
    needs={"sites"},
    explains=LETS_THROUGH,
    quick=True,
)
def mask_after_softmax(probe: Probe) -> Iterator[Found | Tried]:
    looked = 0
    for site, places, what in _hidden_places(probe):
        looked += 1
        op = cut_after(site, places)
        if op is None:
            continue
        lost = float((site.weights * places).sum(-1).max())
        yield Found(
            f"{what} get weight from the softmax and are set to zero after it: rows lose up to {lost:.0%} of "
            "their weight",
            at=op.place,
            module=site.module,
            related=tuple(related([site.softmax.place], "the softmax is here", op.place)),
        )
        return
    yield Tried(f"followed the weights of {looked} attentions from the softmax to the values")


def _hidden_places(probe: Probe) -> Iterator[tuple[Site, torch.Tensor, str]]:
    """Sites with the places that they should hide: the future, and padding."""
    for site in probe.sites:
        _, rows, columns = site.shape
        if rows == columns >= 3:
            future = later(rows, columns, device=site.weights.device)
            yield site, future.expand(site.shape), "later positions"
    try:
        for sight in padded(probe).sights:
            pads, queries = sight.pad_keys, sight.pad_queries
            if pads is not None and queries is not None:
                yield sight.site, ~queries[:, :, None] & pads[:, None, :], "padded keys"
    except NotApplicable:
        return
