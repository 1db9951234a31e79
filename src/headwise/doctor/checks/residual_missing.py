"""Take away what a sub-layer gives: is there still a path from the stream's start to the output?"""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import callers, related
from headwise.doctor.blocks import Blocks, blocks, line_in_function, shared_line
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.sub_layers import SubLayer


@check(
    id="HW401",
    title="A sub-layer replaces the stream instead of adding to it",
    why="All that the layers below knew must pass through it, and so must every gradient: depth hurts.",
    fix="Add the sub-layer's result to its input: x = x + f(norm(x)).",
    needs={"sites"},
    explains={
        "cannot-memorise", "depth-unstable", "attention-ignored", "norm-missing", "final-norm-missing",
        "attention-collapsed", "norm-in-ffn", "embedding-swamps-positions", "positions-swamp-embedding",
        "initial-loss-wrong", "no-warmup-post-norm", "bad-init", "gradient-cut",
    },
    quick=True,
)  # fmt: skip
def residual_missing(probe: Probe) -> Iterator[Found | Tried]:
    found = blocks(probe)
    if len(found.attentions()) < 2:
        raise NotApplicable("fewer than two attention layers: nothing says that they are blocks of a stack")
    reached = probe.base.record.ancestors([probe.base.logits_value])
    asked = [s for s in found.layers if any(v in reached for v in s.results) and not _pools(found, s)]
    bare = [layer for layer in asked if layer.sum is None and not found.goes_round(layer)]
    if not bare:
        yield Tried(f"took away each of {len(asked)} sub-layers in turn, and looked for a path around it")
        return
    layer = bare[0]
    place = _where(found, layer)
    lines = [*_outer(layer, place), layer.last.place]
    yield Found(
        f"every path from the input to the output passes {layer.called}: nothing goes round it "
        f"({len(bare)} of {len(asked)} sub-layers)",
        at=place,
        module=layer.module,
        related=tuple(related(lines, "the sub-layer runs here", place)),
    )


def _pools(found: Blocks, layer: SubLayer) -> bool:
    """One query for the whole sequence: it gathers, and is no block of a stack."""
    longest = max((site.shape[1] for other in found.attentions() for site in other.sites), default=1)
    return layer.kind == "attention" and longest > 1 and all(site.shape[1] == 1 for site in layer.sites)


def _where(found: Blocks, layer: SubLayer) -> Place | None:
    """The line in the function that sums elsewhere; where none does, in the one that also holds the norm."""
    sums = {
        (o.sum.place.file, o.sum.place.function) for o in found.layers if o.sum is not None and o.sum.place
    }
    written = line_in_function(layer.last, sums)
    if written is not None:
        return written
    near = next((n for n in (layer.before, *layer.inner) if n is not None), None)
    others = [near.op] if near is not None else [o.last for o in found.layers if o is not layer][:1]
    return shared_line(layer.last, [*others, *([layer.up] if layer.up is not None else [])])


def _outer(layer: SubLayer, place: Place | None) -> list[Place]:
    """The lines that lead to the one blamed, nearest first."""
    lines = callers(layer.last)
    return lines[lines.index(place) + 1 :] if place in lines else lines
