"""Look at the mask in force in each attention of an encoder: it must not hide all that comes after."""

from __future__ import annotations

from collections.abc import Iterator

from headwise.doctor.blame import related
from headwise.doctor.check import Found, NotApplicable, Tried, check
from headwise.doctor.mask_lines import by_place, not_of, wrong_mask
from headwise.doctor.masks import hidden, later
from headwise.doctor.probe import Probe, differs
from headwise.doctor.sites import Site


@check(
    id="HW104",
    title="The encoder's attention is causal",
    why="Each position is encoded from its left side alone: what stands to its right cannot be used.",
    fix="Give the encoder the padding mask only; the causal mask belongs to the decoder's self-attention.",
    needs={"encoder-side", "sites"},
    quick=True,
)
def causal_mask_in_encoder(probe: Probe) -> Iterator[Found | Tried]:
    stream = probe.source or probe.main
    if stream is None:
        raise NotApplicable("no input is a sequence of tokens or vectors")
    kind = "encoder" if probe.source is not None else "self"
    sites = [site for site in probe.sites_of(kind) if site.shape[1] == site.shape[2] >= 4]
    bad = [site for site in sites if _is_causal(site)]
    if not bad or len(bad) < len(sites):
        yield Tried(f"looked at the masks of {len(sites)} attentions of the encoder")
        return
    if probe.source is None and not probe.is_sequence and _reads_last(probe, bad[-1]):
        yield Tried("the masks are causal, and the answer is read where all tokens are seen")
        return
    site = bad[0]
    place, others = wrong_mask(probe, probe.base.record, site, not_of(probe.sites, bad), by_place)
    yield Found(
        f"all {len(bad)} self-attentions of the encoder hide what comes after: the first sees itself alone",
        at=place,
        module=site.module,
        related=tuple(related(others, "the mask takes part here", place)),
    )


def _is_causal(site: Site) -> bool:
    gone = hidden(site)
    rows = gone.shape[1]
    return bool(gone[:, later(rows, rows)].all()) and bool((~gone[:, later(rows, rows).T]).any())


def _reads_last(probe: Probe, site: Site) -> bool:
    """Does a pooled answer come from the last position alone, which sees all others?"""
    record, mixed, length = probe.base.record, site.mix.out, site.shape[1]
    axes = [axis for axis, size in enumerate(mixed.shape) if size == length]
    pooled = [
        v
        for v in record.descendants([mixed])
        if v.tensor.is_floating_point() and v.shape[:1] == (probe.batch.rows,) and length not in v.shape
    ]
    if len(axes) != 1 or not pooled:
        return True  # nothing can be told
    changed = mixed.tensor.clone()
    changed.narrow(axes[0], 0, length - 1).add_(1.0)
    after = record.replay({mixed: changed}, pooled)
    return not any(
        bool(differs(v.tensor, new, probe.eps).any()) for v, new in zip(pooled, after, strict=True)
    )
