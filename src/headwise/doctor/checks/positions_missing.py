"""Re-arrange the tokens: the outputs of an encoder that knows their order are not merely re-arranged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import torch
from torch import Tensor

from headwise.doctor.adapt import Stream
from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.order import entry, order_enters, shuffled
from headwise.doctor.positions import holder
from headwise.doctor.probe import Probe
from headwise.doctor.runner import gap, largest, ordinary
from headwise.doctor.sites import Site


@check(
    id="HW301",
    title="Nothing tells the model in what order the tokens stand",
    why="Attention sees a set: 'dog bites man' and 'man bites dog' get the same answer, whatever the "
    "training.",
    fix="Add position embeddings to the tokens, or turn queries and keys by their position.",
    needs={"kind", "stream", "finite"},
    quick=True,
)
def positions_missing(probe: Probe) -> Iterator[Found | Tried]:
    stream = probe.source if probe.kind == "encoder-decoder" else probe.main
    if stream is None or 1 < probe.batch.length(stream) < 4:
        raise NotApplicable("the input has fewer than four positions")
    ways = order_enters(probe, stream)
    if ways:
        yield Tried(f"order enters: {', '.join(ways)}")
        return
    if probe.kind == "decoder":
        yield from _in_decoder(probe, stream)
        return
    if not probe.sites:
        raise NotApplicable("no attention was recognised")
    logits, order = shuffled(probe, stream)
    before, after = probe.base.logits, logits
    same = bool(gap(after, before).max() <= _tolerance(probe))
    if probe.kind == "encoder-decoder":
        where = torch.zeros_like(probe.everywhere(stream))
        where[:, 1] = True
        if not probe.compare(probe.change(stream, where)).logits.any():
            raise NotApplicable("the source moves nothing in the output")
        blind = same
    elif probe.is_sequence and len(order) == probe.length:
        first = probe.rows_first(before)[:, order]
        blind = bool(gap(probe.rows_first(after), first).max() <= _tolerance(probe)) and not same
    else:
        blind = same and (len(order) != probe.length or _reads_all(probe, stream))
    if not blind:
        yield Tried("re-arranged the tokens: the outputs are others")
        return
    yield Found(
        f"with the tokens between the first and the last re-arranged {_what(probe)} the same to "
        f"{_tolerance(probe):.0e}: no table is added, nothing is turned, the scores carry no bias",
        **_at(probe, stream),
        severity="note" if not stream.is_ids and probe.batch.length(stream) > 1 else None,
    )


def _in_decoder(probe: Probe, stream: Stream) -> Iterator[Found | Tried]:
    """A causal decoder can count by its mask; the first attention tells whether anything says more."""
    sites = probe.sites_of("causal")
    if not sites:
        raise NotApplicable("no attention was recognised")
    site, length = sites[0], probe.length
    if site.shape[1:] != (length, length):
        raise NotApplicable("the first attention has other places than the tokens")
    order = torch.cat([torch.arange(length - 1).flip(0), torch.tensor([length - 1])])
    values = probe.batch.read(stream)
    run = probe.run(probe.batch.write(stream, values[:, order], "the tokens re-arranged"))
    other = run.record.values[site.weights_value.index].tensor
    if other.shape != site.weights_value.shape:
        raise NotApplicable("the pass takes other steps when the tokens are re-arranged")
    last: Tensor = Site.take(other, site.weights_at)[:, -1]
    if float((last - site.weights[:, -1][:, order]).abs().max()) > 1e-7:
        yield Tried("re-arranged the tokens before the last: the first attention looks elsewhere")
        return
    yield Found(
        "the last position of the first layer looks at the tokens before it in the same way in whatever "
        "order they stand; only the causal mask tells the order, which deeper layers can use",
        **_at(probe, stream),
        severity="note",
        why="A causal decoder can learn to count without positions, if that is meant; it learns order more "
        "slowly.",
    )


def _tolerance(probe: Probe) -> float:
    """Sums taken in another order round otherwise: more than the noise of the same input twice."""
    scores = probe.base.logits
    return max(10 * probe.noise, 1e-9 * largest(scores[ordinary(scores)]))


def _reads_all(probe: Probe, stream: Stream) -> bool:
    """Does an inner token move the pooled output at all?"""
    where = torch.zeros_like(probe.everywhere(stream))
    where[:, 1] = True
    return bool(probe.compare(probe.change(stream, where)).logits.any())


def _what(probe: Probe) -> str:
    if probe.kind == "encoder" and probe.is_sequence:
        return "the outputs are re-arranged likewise, and otherwise"
    return "the outputs are"


class _At(TypedDict):
    at: Place | None
    related: tuple[tuple[Place, str], ...]


def _at(probe: Probe, stream: Stream) -> _At:
    """Where the tokens are ready for the first block, and had better been told their places."""
    op = entry(probe, stream)
    if op is None:
        return {"at": None, "related": ()}
    sites = [site for site in probe.sites if site.q_value.sources >> stream.leaf & 1]
    place = holder(op, sites[0].product)
    return {"at": place, "related": tuple(related(callers(op)[:3], "the tokens become vectors here", place))}
