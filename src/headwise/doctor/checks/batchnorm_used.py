"""Change one row before a batch norm in training: the other rows' results must not move."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional

from headwise.doctor.blame import callers, constructed, related
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.norms import Norm, conv_before, like_noise, norms
from headwise.doctor.probe import Probe


@check(
    id="HW408",
    title="A batch norm stands between the sub-layers",
    why="In training a position depends on other rows, on padding and on the future; evaluation does not.",
    fix="Use LayerNorm or RMSNorm over the features: they treat every position alone, trained or not.",
    needs={"sites"},
    explains={
        "batch-mixed", "batch-changes-answer", "causal-leak", "causal-missing-in-one-layer",
        "padding-attended", "padding-pooled", "cannot-memorise", "depth-unstable", "norm-missing",
        "final-norm-missing", "norm-in-ffn", "norm-wrong-axis", "left-padding-changes-answer",
        "cache-mismatch", "dropout-in-eval"},
    quick=True,
)  # fmt: skip
def batchnorm_used(probe: Probe) -> Iterator[Found | Tried]:
    found = blocks(probe)
    if not found.layers:
        raise NotApplicable("no sub-layers were recognised")
    inside = [n for n in norms(probe) if n.kind == "batch" and not conv_before(n) and _in_a_block(found, n)]
    if not inside:
        yield Tried(f"looked at {len(norms(probe))} norms around {len(found.layers)} sub-layers")
        return
    norm = inside[0]
    moved, others = _moved(norm)
    place = constructed(probe, norm.module) or norm.place
    yield Found(
        f"{len(inside)} batch norms in the blocks; in training, changing one row of "
        f"{list(norm.entered.shape)} moved {moved} of {others} other rows",
        at=place,
        module=norm.module,
        severity="error" if probe.is_causal and moved else "warning",
        related=tuple(related(callers(norm.op), "the norm is applied here", place)),
    )


def _in_a_block(found: Blocks, norm: Norm) -> bool:
    """Does it read a sum of the residual path, or lie on a branch between the stream and its sum?"""
    entrance = found.entrance(norm.entered)
    sums = {layer.sum.out for layer in found.layers if layer.sum is not None}
    if entrance in sums:
        return True
    return any(norm in layer.inner for layer in found.layers) or any(
        layer.up is not None
        and layer.down is not None
        and _between(found, layer.up.out.index, norm, layer.down.index)
        for layer in found.layers
    )


def _between(found: Blocks, up: int, norm: Norm, down: int) -> bool:
    entrance = found.entrance(norm.entered)
    return entrance.index == up and norm.op.index < down


@torch.no_grad()
def _moved(norm: Norm) -> tuple[int, int]:
    noise = like_noise(norm.entered)
    changed = noise.clone()
    changed[0] = 3 * changed[0] + 1
    normed, after = (functional.batch_norm(x, None, None, training=True) for x in (noise, changed))
    gap = (normed - after).abs().flatten(1).amax(1)
    return int((gap[1:] > 1e-4).sum()), len(noise) - 1
