"""What the mask of an attention hides: its form against the right one, how strong it is.

A form is told from `hidden` [N, Tq, Tk], the places whose weight is driven to nothing, not from the mask: so
polarity, dtype, fill value and the way it is applied do not matter.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, matrices
from headwise.doctor.trace import Op

FAINT = 1e-6  # a weight above this is seen: a mask that leaves more is too weak
LOW = -16.0  # a constant bias below this leaves less than FAINT

# What a mask that lets through what it should hide leads to: the checks of masks that find why explain these.
LETS_THROUGH = {
    "causal-leak", "causal-missing-in-one-layer", "padding-attended", "padding-pooled", "cross-mask-missing",
    "batch-changes-answer", "left-padding-changes-answer", "cache-mismatch",
}  # fmt: skip

CausalForm = Literal[
    "causal", "open", "part", "off-by-one", "inverted", "excludes-self", "prefix", "weak", "after", "other"
]


def hidden(site: Site) -> Tensor:
    """Where a query may not look, by a mask strong enough to leave nothing. [N, Tq, Tk]"""
    return site.hidden | ((site.bias < LOW) & (site.weights < FAINT))


def later(rows: int, columns: int, by: int = 0, device: torch.device | None = None) -> Tensor:
    """[rows, columns] True where the key stands more than `by` places after the query."""
    keys, queries = torch.arange(columns, device=device), torch.arange(rows, device=device)
    return keys[None, :] > queries[:, None] + by


def causal_form(probe: Probe, site: Site) -> CausalForm:
    """What a self-attention that must be causal hides of the future; "other" where its axes are not time."""
    return probe.memo(f"causal form {site.index}", lambda: _causal_form(probe, site))


def _causal_form(probe: Probe, site: Site) -> CausalForm:
    _, rows, columns = site.shape
    if rows != columns or rows != probe.length or rows < 4:
        return "other"
    gone = hidden(site)
    future = later(rows, rows, device=gone.device)
    seen = ~gone
    past, itself, previous = (
        future.T,
        torch.eye(rows, dtype=torch.bool, device=gone.device),
        future.T & ~later(rows, rows, 1, gone.device).T,
    )
    following = future & ~later(rows, rows, 1, gone.device)
    if not bool(seen[:, future].any()):
        if bool(gone[:, itself][:, 1:].all()) and bool(seen[:, past].any()) and not _same(site.q, site.k):
            return "excludes-self"
        return "causal"
    if bool(seen[:, future].all()) and bool(gone[:, previous].all()):
        return "inverted"
    symmetric = torch.equal(seen, seen.mT)
    for by in (1, 2):
        beyond = later(rows, rows, by, gone.device)
        if not symmetric and bool(gone[:, beyond].all()) and bool(seen[:, future & ~beyond].all()):
            return "off-by-one"
    if bool((prefixes(site) >= 0).all()):
        return "prefix"
    if weak_fill(site, future) is not None:
        return "weak"
    if cut_after(site, future) is not None:
        return "after"
    return "part" if bool(gone[:, future].any()) or not bool(seen[:, following].all()) else "open"


def prefixes(site: Site) -> Tensor:
    """[N] how many places at the start all see one another (prefix-LM): 0 for causal, -1 for other forms."""
    n, rows, columns = site.shape
    if rows != columns:
        return torch.full((n,), -1)
    seen = ~hidden(site)
    look = seen & later(rows, rows, device=seen.device)
    places = torch.arange(rows, device=seen.device)
    length = torch.where(look.any(1), places + 1, 0).amax(-1)
    right = later(rows, rows, device=seen.device) & (places[None, None, :] < length[:, None, None])
    fits = (look == right).flatten(1).all(1) & (length < rows)
    return torch.where(fits, length, -1)


def weak_fill(site: Site, places: Tensor) -> float | None:
    """The constant that these places [(N,) Tq, Tk] alone were filled with or moved by, if weight remains."""
    where = places.expand(site.shape)
    others = ~where & ~hidden(site)
    if int(where.sum()) < 3 or not bool(others.any()) or float(site.weights[where].max()) < FAINT:
        return None
    size = float(site.raw.abs().max()) or 1.0
    candidates = [site.bias]
    if bool(
        ((site.raw[where] - site.raw[where][0]).abs() > 1e-4 * size).any()
    ):  # keys of zeros give zeros unmasked
        candidates.append(site.scores)
    if where.shape[1] == where.shape[2]:  # the row's maximum may have been subtracted: softmax does not mind
        candidates.append(site.bias - site.bias.diagonal(dim1=1, dim2=2)[..., None])
    for numbers in candidates:
        inside, outside = numbers[where], numbers[others]
        if not bool(torch.isfinite(inside).all()):
            continue
        fill = float(inside.median())
        if (
            float((inside - fill).abs().max()) < 1e-6 * size
            and float((outside - fill).abs().median()) > 1e-4 * size
        ):
            return fill
    return None


def cut_after(site: Site, places: Tensor) -> Op | None:
    """The operation after the softmax that makes these weights zero, if rows then fall short of one."""
    left, right = matrices(site.mix)
    operand = left if right is site.v_value else right
    used = operand.tensor if operand.tensor.dim() == 3 else operand.tensor.reshape(1, *operand.shape[-2:])
    used = used if operand is left else used.mT
    if used.shape != site.weights.shape or not site.after:
        return None
    where = places.expand(site.shape) & (used.abs().sum(-1, keepdim=True) > 0)
    if not bool(where.any()) or bool((used[where] != 0).any()) or float(site.weights[where].max()) < FAINT:
        return None
    if not bool(((used.sum(-1) - site.weights.sum(-1)).abs() > FAINT).any()):
        return None
    steps = [op for op in site.after if op.name.rstrip("_") in {"mul", "masked_fill", "where", "minimum"}]
    return steps[0] if steps else None


def causal_forms(probe: Probe) -> list[tuple[Site, CausalForm]]:
    """Every attention that must be causal, with the form of its mask."""
    return [(site, causal_form(probe, site)) for site in probe.sites_of("causal")]


def _same(a: Tensor, b: Tensor) -> bool:
    """Are queries and keys the same vectors up to length (shared-QK attention, which must not see itself)?"""
    one = torch.nn.functional.normalize(a, dim=-1)
    two = torch.nn.functional.normalize(b, dim=-1)
    return a.shape == b.shape and bool(torch.allclose(one, two, atol=1e-6))
