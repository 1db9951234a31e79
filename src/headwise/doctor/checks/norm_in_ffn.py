"""Does a norm stand between the two linear layers of a feed-forward layer?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, constructed, related
from headwise.doctor.blocks import Blocks, blocks
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.norms import Norm, norms, written_at
from headwise.doctor.probe import Probe
from headwise.doctor.sub_layers import SubLayer


@check(
    id="HW409",
    title="A norm stands inside the feed-forward layer",
    why="The hidden layer has one size for every position: what a unit says is only relative to others.",
    fix="Leave the hidden layer alone: normalise what the feed-forward layer reads, or the sum after it.",
    severity="warning",
    needs={"sites"},
)
def norm_in_ffn(probe: Probe) -> Iterator[Found | Tried]:
    found = blocks(probe)
    pairs = [layer for layer in found.layers if layer.kind == "feed-forward"]
    if not pairs:
        raise NotApplicable("no feed-forward layers were recognised")
    # NormFormer, sub-LN and BitNet norm inside the attention too: there it is meant.
    is_meant = any(layer.inner for layer in found.attentions())
    for layer in pairs:
        norm = _inside(found, layer)
        if norm is None or is_meant or norm.kind == "batch":
            continue
        place = written_at(probe, norm.op)
        lines = [norm.place, constructed(probe, norm.module), *callers(norm.op)]
        yield Found(
            f"between its two linear layers a norm sets each position's {norm.entered.shape[-1]} hidden "
            "numbers to one size; the attention has none inside",
            at=place,
            module=norm.module,
            related=tuple(related(lines, "the norm is applied here", place)),
        )
        return
    yield Tried(f"looked between the two linear layers of {len(pairs)} feed-forward layers")


def _inside(found: Blocks, layer: SubLayer) -> Norm | None:
    assert layer.up is not None and layer.down is not None
    on_the_way = set(found.probe.base.record.between([layer.up.out], [layer.down.out]))
    return next((norm for norm in norms(found.probe) if norm.op in on_the_way), None)
