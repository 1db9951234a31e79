"""Does what goes round a pre-norm block's first sub-layer pass the block's norm as well?"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from headwise.doctor.blame import callers, related
from headwise.doctor.blocks import JOINS, Blocks, SubLayer, blocks
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.norms import Norm, norms, rms
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Op, Value

Call = tuple[str, int]


@check(
    id="HW402",
    title="The residual is taken after the norm",
    why="No path goes round the norms: the stream loses its size in every block, and gradients shrink with depth.",
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
        call = _block_of(found, layer, norm)
        if call is None:
            continue
        place = layer.sum.place
        kept = _kept(probe, norm, layer.sum)
        yield Found(
            f"what is added to {layer.called} is the norm's result, not the stream: with a stream ten times as "
            f"large the sum changed by {kept:.1g} of its size",
            at=place,
            module=call[0],
            related=tuple(related([norm.place, *callers(norm.op)], "the stream is normalised here", place)),
        )
        return
    yield Tried(f"followed what goes round each of {len(summed)} sub-layers back to where it comes from")


def _normed_skip(found: Blocks, layer: SubLayer) -> Norm | None:
    """The norm that the other side of the sum comes from, if the sub-layer reads the same value, normed alike."""
    assert layer.skip is not None and layer.before is not None
    norm = found.norm_behind(layer.skip)
    if norm is None or norm is not layer.before and norm.entered is not layer.before.entered:
        return None
    return norm if norm.gains == layer.before.gains else None


def _block_of(found: Blocks, layer: SubLayer, norm: Norm) -> Call | None:
    """The module call that shows it to be a pre-norm block; None where this may be post-norm, as in BERT.

    Post-norm has the same operations in the same order: only the block's bounds tell them apart. In a pre-norm
    block the stream comes in from outside and meets the norm first, and what goes out is a sum.
    """
    assert layer.sum is not None
    call = next((c for c in reversed(norm.op.modules) if c in layer.sum.modules and c[0]), None)
    if call is None:
        return None
    entered = found.entrance(norm.entered)
    if not _comes_from_outside(call, entered) and not _first_is_pre_norm(found, call, entered):
        return None
    alike = {other.out for other in norms(found.probe) if other.entered is norm.entered}
    below = found.probe.base.record.descendants([norm.entered], stop=alike)
    if found.probe.base.logits_value in below:
        return None
    outs = [found.entrance(value) for value in _leaving(found, call, layer.sum.out)]
    return call if outs and all(_is_sum(value) for value in outs) else None


def _is_sum(value: Value) -> bool:
    return value.op is not None and value.op.name in JOINS and sum(v.sources > 0 for v in value.op.inputs) > 1


def _comes_from_outside(call: Call, value: Value) -> bool:
    return value.op is None or call not in value.op.modules


def _first_is_pre_norm(found: Blocks, call: Call, entered: Value) -> bool:
    """Did an earlier sub-layer of the same block, whose sum this is, go round its norm as it should?"""
    for layer in found.layers:
        if layer.sum is None or layer.sum.out is not entered or call not in layer.sum.modules:
            continue
        if layer.before is None or layer.skip is None or call not in layer.before.op.modules:
            return False
        return found.norm_behind(layer.skip) is None and _comes_from_outside(call, found.entrance(layer.skip))
    return False


def _leaving(found: Blocks, call: Call, after: Value) -> list[Value]:
    """The values that a call makes, from the sum on, and that something outside reads (or that are the output)."""
    below = found.probe.base.record.descendants([after])
    inside = [value for value in below if value.op is not None and call in value.op.modules]
    out = found.probe.base.logits_value
    return [value for value in inside if value is out or any(call not in op.modules for op in value.users)]


@torch.no_grad()
def _kept(probe: Probe, norm: Norm, total: Op) -> float:
    """How much a sum changes, as a share of its size, when ten times as much enters the norm."""
    entered = norm.entered
    after = probe.base.record.replay({entered: 10 * entered.tensor}, [total.out])[0]
    return rms(after - total.out.tensor) / max(rms(total.out.tensor), 1e-30)
