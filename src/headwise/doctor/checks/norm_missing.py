"""Is there a norm before, on, or after each branch of the residual path?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.norms import rms
from headwise.doctor.probe import Probe
from headwise.doctor.sub_layers import SubLayer


@check(
    id="HW406",
    title="Sub-layers have no norm",
    why="The stream grows with every sum and nothing brings it back: a deep stack diverges, or barely steps.",
    fix="Put a norm before each sub-layer, x + f(norm(x)), and one before the output.",
    severity="warning",
    needs={"sites"},
    explains={"depth-unstable", "final-norm-missing", "cannot-memorise", "bad-init", "initial-loss-wrong"},
)
def norm_missing(probe: Probe) -> Iterator[Found | Tried]:
    found = blocks(probe)
    deep = [s for s in found.layers if s.sum is not None and found.depth(s.stream) >= 2]
    if not deep:
        raise NotApplicable("no stack of two or more blocks with residual sums was recognised")
    bare = [layer for layer in deep if _is_bare(found, layer)]
    # One attention and one feed-forward layer may lean on an earlier norm; a design repeats in every block.
    kinds = {kind for kind in ("attention", "feed-forward") if sum(layer.kind == kind for layer in bare) >= 2}
    wanting = [layer for layer in bare if layer.kind in kinds]
    if not wanting:
        yield Tried(f"looked for a norm around each of {len(deep)} sub-layers")
        return
    first = wanting[0]
    assert first.sum is not None and first.skip is not None
    grown = rms(wanting[-1].sum.out.tensor) if wanting[-1].sum else 0.0
    yield Found(
        f"{len(wanting)} of {len(deep)} sub-layers have no norm before, on or after them: the stream has "
        f"size {rms(first.skip.tensor):.2g} before the first, and {grown:.2g} after the last",
        at=first.sum.place,
        module=first.module,
        related=tuple(
            related(
                [*callers(first.sum)[1:], *callers(first.last)],
                "the sub-layer is called here",
                first.sum.place,
            )
        ),
    )


def _is_bare(found: Blocks, layer: SubLayer) -> bool:
    """No norm near, nothing that scales the branch (ReZero, Fixup), and no branch that starts at zero?"""
    assert layer.sum is not None
    is_normed = bool(layer.inner) or not found.reads_raw(layer) or _is_post_norm(found, layer)
    if is_normed or layer.is_scaled:
        return False
    branch = [v for v in layer.sum.inputs if v is not layer.skip and v.sources]
    return bool(branch) and all(rms(v.tensor) > 0 for v in branch)


def _is_post_norm(found: Blocks, layer: SubLayer) -> bool:
    """Is its sum normalised? The norm after the last sum counts only where others have theirs as well."""
    if not found.is_normed_after(layer):
        return False
    last = found.last_sum(layer.stream)
    if last is None or layer.sum is not last.sum:
        return True
    return any(
        found.is_normed_after(other) for other in found.sums(layer.stream) if other.sum is not last.sum
    )
