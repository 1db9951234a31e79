"""Is the map between the two linear layers of a feed-forward layer itself linear?"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, related
from headwise.doctor.blocks import blocks
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.flow import data_of
from headwise.doctor.norms import like_noise, written_at
from headwise.doctor.probe import Probe
from headwise.doctor.sub_layers import SubLayer


@check(
    id="HW411",
    title="No activation between two linear layers",
    why="Two linear layers in a row are one: the feed-forward layer's width adds parameters and no power.",
    fix="Apply a non-linearity (GELU, ReLU, SiLU) to the hidden layer, between the two.",
    needs={"sites"},
)
def activation_missing(probe: Probe) -> Iterator[Found | Tried]:
    pairs = [
        layer for layer in blocks(probe).layers if layer.kind == "feed-forward" and layer.sum is not None
    ]
    if not pairs:
        raise NotApplicable("no feed-forward layers on a residual path were recognised")
    for layer in pairs:
        assert layer.up is not None and layer.down is not None
        width, hidden = layer.reads[0].shape[-1], layer.up.out.shape[-1]
        if hidden < width or layer.down.out.shape[-1] != width or not _is_linear(probe, layer):
            continue  # a bottleneck (an adapter, a low-rank update) may well be linear
        place = written_at(probe, layer.down)
        lines = [layer.down.place, *callers(layer.down), *callers(layer.up)]
        yield Found(
            f"{width} numbers go to {hidden} and back to {width}, and what lies between is linear: twice the "
            "hidden numbers gave twice the difference, to rounding",
            at=place,
            module=layer.module,
            related=tuple(related(lines, "the layer runs here", place)),
        )
        return
    yield Tried(f"doubled the hidden numbers of {len(pairs)} feed-forward layers")


@torch.no_grad()
def _is_linear(probe: Probe, layer: SubLayer) -> bool:
    """Is what the second layer reads f(u) = a u + b of what the first one gives? Asked with noise."""
    assert layer.up is not None and layer.down is not None
    start, end = layer.up.out, data_of(layer.down)
    if start is end:
        return True
    noise = like_noise(start)
    zero, one, back = (probe.base.record.replay({start: c * noise}, [end])[0] for c in (0.0, 1.0, -2.0))
    size = float((one - zero).abs().max())
    return size > 0 and float((back - zero + 2 * (one - zero)).abs().max()) < 1e-4 * size
