"""Does what goes round a pre-norm block's first sub-layer pass the block's norm as well?"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, related
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.bounds import pre_norm_block
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.graph import Op
from headwise.doctor.norms import Norm, rms
from headwise.doctor.probe import Probe
from headwise.doctor.sub_layers import SubLayer


@check(
    id="HW402",
    title="The residual is taken after the norm",
    why="No path goes round the norms: the stream loses its size in every block, and so does the gradient.",
    fix="Add to the value before the norm: x = x + f(norm(x)).",
    needs={"sites"},
    explains={"depth-unstable", "cannot-memorise", "final-norm-missing", "no-warmup-post-norm"},
    quick=True,
)
def residual_from_normed(probe: Probe) -> Iterator[Found | Tried]:
    found = blocks(probe)
    summed = [layer for layer in found.layers if layer.sum is not None and layer.before is not None]
    if not summed:
        raise NotApplicable("no residual sums around normalised sub-layers were recognised")
    for layer in summed:
        norm = _normed_skip(found, layer)
        if norm is None or layer.sum is None:
            continue
        block = pre_norm_block(found, layer, norm)
        if block is None:
            continue
        place = layer.sum.place
        kept = _kept(probe, norm, layer.sum)
        yield Found(
            f"what is added to {layer.called} is the norm's result, not the stream: with a stream ten times "
            f"as large the sum changed by {kept:.1g} of its size",
            at=place,
            module=block,
            related=tuple(related([norm.place, *callers(norm.op)], "the stream is normalised here", place)),
        )
        return
    yield Tried(f"followed what goes round each of {len(summed)} sub-layers back to where it comes from")


def _normed_skip(found: Blocks, layer: SubLayer) -> Norm | None:
    """The norm that the other side of the sum comes from, if the sub-layer reads the same, normed alike."""
    assert layer.skip is not None and layer.before is not None
    norm = found.norm_behind(layer.skip)
    if norm is None or found.entrance(norm.entered) is not found.entrance(layer.before.entered):
        return None
    return norm if norm.gains == layer.before.gains else None


@torch.no_grad()
def _kept(probe: Probe, norm: Norm, total: Op) -> float:
    """How much a sum changes, as a share of its size, when ten times as much enters the norm."""
    entered = norm.entered
    after = probe.base.record.replay({entered: 10 * entered.tensor}, [total.out])[0]
    return rms(after - total.out.tensor) / max(rms(total.out.tensor), 1e-30)
