"""Change the whole source, and look at the graph: the decoder must read what the encoder's attention gave."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import dropped_in, line_in, related
from headwise.doctor.check import Found, Place, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.trace import Op, Value


@check(
    id="HW213",
    title="The decoder does not read the encoder's output",
    why="The answer does not depend on the encoded source: it is a language model of the target.",
    fix="Give cross-attention the encoder's final output as keys and values; only queries are the decoder's.",
    needs={"encoder-decoder", "finite"},
    explains={
        "attention-ignored", "unused-parameters", "cross-mask-missing", "cross-mask-wrong",
        "mask-not-forwarded", "cannot-memorise", "padding-attended", "gradient-cut", "mask-wrong-axis",
        "positions-missing", "cache-mismatch", "causal-mask-in-encoder", "mask-inverted", "causal-leak",
        "causal-missing-in-one-layer",
    },
    quick=True,
)  # fmt: skip
def encoder_output_unused(probe: Probe) -> Iterator[Found | Tried]:
    source = probe.source
    assert source is not None
    record = probe.base.record
    used = record.ancestors(
        [probe.base.logits_value]
    )  # not what else is given back: the encoder's states may be
    encoder = probe.sites_of("encoder")
    bit = 1 << source.leaf
    reads = any(v.sources & bit and v.trained and v.tensor.is_floating_point() for v in used)
    unread = bool(encoder) and not any(site.mix.out in used for site in encoder)
    if reads and not unread:
        yield Tried(
            f"followed the outputs back to the source: {sum(site.mix.out in used for site in encoder)} of "
            f"{len(encoder)} attentions of the encoder lie on the way"
        )
        return
    moved = probe.compare(probe.change(source, probe.everywhere(source, value=True)))
    by = float(moved.logits_by.max())
    output = _output(probe, bit, used)
    at, other = _line(probe, output) if output is not None else (None, None)
    cross = _reader(probe)
    saw = (
        f"changing every source token moved the outputs by {by:.2g}, through the source's embedding only: no "
        f"attention of the encoder ({len(encoder)}) leads to them"
        if reads
        else f"changing every source token moved the outputs by {by:.2g}: no path leads there"
    )
    if at is None and cross is not None:
        at = cross.place
    yield Found(
        saw,
        at=at,
        module=cross.module if cross is not None else "",
        related=(
            *related(
                [cross.product.place if cross is not None else None], "keys and values are read here", at
            ),
            *related([other], "the encoder's output is handed over here", at),
            *related(
                [output.op.place if output is not None and output.op else None], "the encoder ends here", at
            ),
        ),
    )


def _output(probe: Probe, bit: int, used: set[Value]) -> Value | None:
    """The encoder's output that nobody reads: the last value of the source alone that nothing rests on."""
    dead = [
        v
        for v in probe.base.record.values
        if v.sources == bit and v.trained and v.op is not None and v.output == 0 and v not in used
        and v.tensor.is_floating_point()
        and not any(out.trained and out.tensor.is_floating_point() for op in v.users for out in op.outputs)
    ]  # fmt: skip
    return max(dead, key=lambda v: v.index) if dead else None


def _reader(probe: Probe) -> Site | None:
    """The attention that should read the source: cross-attention, else the second of the decoder."""
    cross = probe.sites_of("cross")
    own = probe.sites_of("decoder")
    if cross:
        return cross[0]
    return own[1] if len(own) > 1 else (own[0] if own else None)


def _line(probe: Probe, output: Value) -> tuple[Place | None, Place | None]:
    """Where the encoder's output should have been read: in the function that got it, or that made it."""
    sites = [site for site in probe.sites if probe.site_kind(site) != "encoder"]
    call = dropped_in(probe, output)
    if call is not None:
        last = call.last if call.last >= 0 else len(probe.base.record.ops)
        inside = [site for site in sites if call.first <= site.product.index < last]
        if inside:
            at = line_in(inside[-1].product, call.place)
            outer = [f.place for f in inside[-1].product.frames if f.place.function != call.place.function]
            return at, next((p for p in outer if at is not None and _calls(inside[-1].product, at, p)), None)
    assert output.op is not None
    made = {frame.call: frame.place.function for frame in output.op.frames}
    for site in [s for s in sites if probe.site_kind(s) == "cross"] or sites:
        for frame in site.product.frames:
            if made.get(frame.call) == frame.place.function:
                return frame.place, None
    return None, None


def _calls(op: Op, inner: Place, outer: Place) -> bool:
    """Does `outer` stand right outside `inner` among the frames of an operation?"""
    places = [frame.place for frame in op.frames]
    return inner in places and outer in places and places.index(outer) == places.index(inner) + 1
