"""Look at the attention maps of the untrained model: neither exactly uniform nor all on one key."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headwise.doctor.batch import Batch
from headwise.doctor.blame import callers, related
from headwise.doctor.check import Found, Picture, Tried, check
from headwise.doctor.probe import Probe
from headwise.doctor.rehearsal import drawn_at
from headwise.doctor.sites import Site, attention_sites
from headwise.doctor.trace import recording
from headwise.doctor.untouched import default_dtype

ONE_HOT = 0.98  # mean of the largest weight; fresh public models measure 0.1 to 0.5 over eleven keys
FLAT = 1e-5  # spread of a query's scores over the keys it may look at; the smallest healthy one is 1e-3
SETTLE = 3  # optimizer steps after which zero-initialised queries have moved


@check(
    id="HW707",
    title="Attention has collapsed: every query looks at one key only, or at all alike",
    why="A one-hot softmax passes no gradient to queries and keys; a flat one tells no key from another.",
    fix="Draw the query and key projections smaller (or not at zero), and divide the scores by sqrt(d_head).",
    severity="warning",
    needs={"sites", "finite"},
    explains={"bad-init"},
)
def attention_collapsed(probe: Probe) -> Iterator[Found | Tried]:
    measured = [(site, *_measure(site)) for site in probe.sites]
    measured = [entry for entry in measured if entry[1] is not None]
    sharp = [site for site, top, _ in measured if top is not None and top > ONE_HOT]
    flat = [site for site, _, spread in measured if spread < FLAT]
    if flat and _moves_later(probe, flat):
        flat = []
    chosen = sharp or flat
    if not chosen or len(chosen) * 2 < len(measured):
        tops = ", ".join(f"{top:.2f}" for _, top, _ in measured[:6])
        yield Tried(f"the mean of the largest weight at {len(measured)} attentions: {tops}")
        return
    site = chosen[0]
    top, spread = _measure(site)
    drawn = [drawn_at(probe, value) for value in (site.q_value, site.k_value)]
    odd = [where for where, weight in drawn if weight is not None and not 1 / 3 < size(weight) < 3]
    lines = callers(site.q_value.op) if site.q_value.op is not None else []
    place = next((where for where in odd if where is not None), None) or site.product.place
    what = (
        f"the largest of each query's weights is {top:.3f} on average, the scores spread by {spread:.3g}"
        if chosen is sharp
        else f"all scores of a query are equal (spread {spread:.1g}): every key weighs the same"
    )
    yield Found(
        f"{what}; at {len(chosen)} of {len(measured)} attentions",
        at=place,
        module=site.module,
        related=tuple(related([*lines[:1], site.product.place], "the scores are made here", place)),
        picture=_picture(site),
    )


def size(weight: Tensor) -> float:
    """The rms of a projection's weights times the square root of its inputs: 0.6 to 1.4 as usually drawn."""
    return float(weight.square().mean().sqrt()) * min(weight.shape) ** 0.5


def _measure(site: Site) -> tuple[float | None, float]:
    """The mean of the largest weight and of the scores' spread, over queries with three keys or more."""
    keys = site.allowed.sum(-1)
    rows = keys >= 3
    if not bool(rows.any()):
        return None, 1.0
    top = site.weights.masked_fill(site.hidden, 0.0).amax(-1)[rows]
    seen: Tensor = torch.where(site.allowed, site.inner_scale * site.raw, torch.nan)
    spread = (seen - seen.nanmean(-1, keepdim=True)).square().nanmean(-1).sqrt()[rows]
    return float(top.mean()), float(spread.mean())


def _moves_later(probe: Probe, flat: list[Site]) -> bool:
    """Zero-initialised queries or keys are a design: do the scores spread after a few steps?"""
    if probe.subject.loss is None or probe.subject.targets is None:
        return True
    leaves = Batch.given(probe.adapted).leaves
    with probe.training_copy() as (model, _):
        steps = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
        with torch.enable_grad():
            for _ in range(SETTLE):
                steps.zero_grad()
                torch.autograd.backward(probe.loss(probe.adapted.call(model, leaves)))
                steps.step()  # pyright: ignore[reportUnknownMemberType]
        dtype = next(model.parameters()).dtype
        with torch.no_grad(), default_dtype(dtype), recording(model.eval(), leaves) as record:
            probe.adapted.call(model, leaves)
        later = attention_sites(record)
    places = {site.index for site in flat}
    return any(site.index in places and _measure(site)[1] > FLAT for site in later)


def _picture(site: Site) -> Picture:
    weights = site.weights[0].masked_fill(site.hidden[0], torch.nan)
    return Picture(
        "matrix",
        "Attention of the first head and row",
        tuple(tuple(float(x) for x in row) for row in weights),
        x_label="key position",
        y_label="query position",
        caption="Each row is one query's weights over the keys.",
    )
