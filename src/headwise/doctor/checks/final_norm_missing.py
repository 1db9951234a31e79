"""Does the sum of a pre-norm stack reach the output without a norm?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.flow import weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.norms import norms, rms
from headwise.doctor.probe import Probe
from headwise.doctor.sites import softmaxes
from headwise.doctor.sub_layers import SubLayer

# Learned latents that read the words start as small as they were drawn, and some designs leave them so.
GROWTH = 1.5


@check(
    id="HW407",
    title="The last sum of a pre-norm stack is not normalised",
    why="The stream grows with every block, and so do the logits: first losses depend on the depth.",
    fix="Normalise once more after the last block, before the output projection reads it.",
    severity="warning",
    needs={"sites"},
    explains={"initial-loss-wrong", "depth-unstable"},
)
def final_norm_missing(probe: Probe) -> Iterator[Found | Tried]:
    found = blocks(probe)
    stacks = [stream for stream in found.streams if found.depth(stream) >= 2 and _is_pre_norm(found, stream)]
    if not stacks:
        raise NotApplicable("no pre-norm stack of two or more blocks was recognised")
    for stream in stacks:
        last = found.last_sum(stream)
        reader = _raw_reader(found, last) if last is not None else None
        if last is None or last.sum is None or reader is None:
            continue
        first = next(layer for layer in found.layers if layer.stream == stream and layer.skip is not None)
        assert first.skip is not None
        before, after = rms(first.skip.tensor), rms(last.sum.out.tensor)
        yield Found(
            f"after {found.depth(stream)} pre-norm blocks a projection reads the sum without a norm: its "
            f"size went from {before:.2g} to {after:.2g}",
            at=reader.place,
            module=reader.module,
            severity="note" if after < GROWTH * before and _of_latents(probe, first.skip) else None,
            related=tuple(
                related([*callers(reader)[1:], last.sum.place], "the last sum is made here", reader.place)
            ),
        )
        return
    yield Tried(f"followed the last sum of {len(stacks)} pre-norm stacks to what reads it")


def _is_pre_norm(found: Blocks, stream: str) -> bool:
    """Does every sub-layer read a norm, while what goes round it is the sum before that norm?"""
    layers = found.sums(stream)
    return bool(layers) and all(
        layer.before is not None and not found.is_normed_after(layer) for layer in layers[:-1]
    )


def _of_latents(probe: Probe, value: Value) -> bool:
    """Does the stack work on learned latents that have read the words, rather than on the words?"""
    before = probe.base.record.ancestors([value])
    return any(weight in before for _, _, weight in softmaxes(probe.base.record))


def _raw_reader(found: Blocks, last: SubLayer) -> Op | None:
    """The product with weights that reads the last sum when no norm lies on any way from it to the output."""
    assert last.sum is not None
    record = found.probe.base.record
    out = found.probe.base.logits_value
    stop = {norm.out for norm in norms(found.probe)}
    below = record.descendants([last.sum.out], stop=stop)
    if last.stream == "main" and out not in below:
        return None
    readers = [op for value in below for op in value.users if op.outputs and weight_of(op) is not None]
    if last.stream == "main":
        above = record.ancestors([out])
        readers = [op for op in readers if op.out in above and op.out in below]
    return min(readers, key=lambda op: op.index) if readers else None
