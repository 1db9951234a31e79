"""What the mask of an attention hides: its form against the right one, how strong it is, who wrote it.

A form is told from `hidden` [N, Tq, Tk], the places whose score is driven to nothing, not from the mask's tensor:
so polarity, dtype, fill value and the way it is applied do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import torch
from torch import Tensor

from headwise.doctor.blame import applied_at, callers, made_places
from headwise.doctor.check import Place
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site, matrices
from headwise.doctor.trace import Op, Recording, Value

FAINT = 1e-6  # a weight above this is seen: a mask that leaves more is too weak
LOW = -16.0  # a constant bias below this leaves less than FAINT

CausalForm = Literal[
    "causal", "open", "part", "off-by-one", "inverted", "excludes-self", "prefix", "weak", "after", "other"
]


def hidden(site: Site) -> Tensor:
    """Where a query may not look, by a mask strong enough to leave nothing. [N, Tq, Tk]"""
    return site.hidden | ((site.bias < LOW) & (site.weights < FAINT))


def later(rows: int, columns: int, by: int = 0) -> Tensor:
    """[rows, columns] True where the key stands more than `by` places after the query."""
    return torch.arange(columns)[None, :] > torch.arange(rows)[:, None] + by


def causal_form(probe: Probe, site: Site) -> CausalForm:
    """What a self-attention that must be causal hides of the future; "other" where its axes are not time."""
    return probe.memo(f"causal form {site.index}", lambda: _causal_form(probe, site))


def _causal_form(probe: Probe, site: Site) -> CausalForm:
    _, rows, columns = site.shape
    if rows != columns or rows != probe.length or rows < 4:
        return "other"
    gone, future = hidden(site), later(rows, rows)
    seen = ~gone
    past, itself, previous = (
        future.T,
        torch.eye(rows, dtype=torch.bool),
        later(rows, rows).T & ~later(rows, rows, 1).T,
    )
    following = future & ~later(rows, rows, 1)
    if not bool(seen[:, future].any()):
        if bool(gone[:, itself][:, 1:].all()) and bool(seen[:, past].any()) and not _same(site.q, site.k):
            return "excludes-self"
        return "causal"
    if bool(seen[:, future].all()) and bool(gone[:, previous].all()):
        return "inverted"
    symmetric = torch.equal(seen, seen.mT)
    for by in (1, 2):
        beyond = later(rows, rows, by)
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
    """[N] how many places at the start all see one another (prefix-LM), 0 for strictly causal, -1 for other forms."""
    n, rows, columns = site.shape
    if rows != columns:
        return torch.full((n,), -1)
    seen, future = ~hidden(site), later(rows, rows)
    look = seen & future
    length = torch.where(look.any(1), torch.arange(rows) + 1, 0).amax(-1)
    right = future & (torch.arange(rows)[None, None, :] < length[:, None, None])
    fits = (look == right).flatten(1).all(1) & (length < rows)
    return torch.where(fits, length, -1)


def weak_fill(site: Site, places: Tensor) -> float | None:
    """The constant that these places [(N,) Tq, Tk], and no others, were filled with or moved by, if weight remains."""
    where = places.expand(site.shape)
    if int(where.sum()) < 3 or bool(where.all()) or float(site.weights[where].max()) < FAINT:
        return None
    numbers_of = [site.scores, site.bias]
    if where.shape[1] == where.shape[2]:  # the row's maximum may have been subtracted: softmax does not mind
        numbers_of.append(site.bias - site.bias.diagonal(dim1=1, dim2=2)[..., None])
    for numbers in numbers_of:
        inside, outside = numbers[where], numbers[~where]
        size = float(site.raw.abs().max()) or 1.0
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
    """The operation after the softmax that sets these places' weights to zero, if rows then fall short of one."""
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


def two_valued(tensor: Tensor) -> bool:
    """Does a tensor hold exactly two different numbers, as a mask does?"""
    if not 1 < tensor.numel() <= 2**22 or tensor.is_complex():
        return False
    low, high = tensor.min(), tensor.max()
    return bool(low != high) and bool(((tensor == low) | (tensor == high)).all())


def by_place(tensor: Tensor) -> bool:
    """Is it a mask that differs by query and by key: a triangle, a band, blocks?"""
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 3 or not two_valued(tensor):
        return False
    one, two = tensor[..., :1, :] != tensor, tensor[..., :, :1] != tensor
    return bool(one.any()) and bool(two.any())


def alike(tensor: Tensor) -> bool:
    """Is it a mask with the same number at every place, which hides nothing (or everything)?"""
    return 1 < tensor.numel() <= 2**22 and min(tensor.shape[-2:]) > 2 and bool((tensor == tensor.flatten()[0]).all())


def triangle(tensor: Tensor, length: int) -> bool:
    """Is it a causal mask of this length, whatever its values mean?"""
    if tensor.dim() < 2 or tuple(tensor.shape[-2:]) != (length, length) or tensor.numel() != length * length:
        return False
    if not two_valued(tensor):
        return False
    square, future = tensor.reshape(length, length), later(length, length)
    above, below = square[future], square[future.T]
    return bool((above == above[0]).all()) and bool((below == below[0]).all()) and bool(above[0] != below[0])


def mask_values(site: Site) -> list[Value]:
    """What is added to, put in place of, or multiplied with the scores of a site."""
    found = [value for _, value in site.masks]
    for op in (*site.path, *site.after):
        if op.name.rstrip("_") == "mul":
            found += [v for v in op.inputs if v.tensor.numel() > 1 and not v.trained and two_valued(v.tensor)]
    return found


def made_at(
    probe: Probe,
    record: Recording,
    masks: Sequence[Value],
    test: Callable[[Tensor], bool],
    but: Sequence[Value] = (),
) -> tuple[Value | None, Place | None]:
    """The first tensor on the way to these masks (not to those in `but`) that passes the test, and its line."""
    for value in sorted(record.ancestors(masks) - record.ancestors(but), key=lambda v: (v.op is not None, v.index)):
        if value.trained or not test(value.tensor):
            continue
        if value.op is None:
            places = made_places(probe, value)
            if places:
                return value, places[0]
            continue
        if value.op.place is not None:
            return value, value.op.place
    return None, None


def own_line(bad: Site, good: Iterable[Site], *, op: Op | None = None) -> Place | None:
    """The innermost of the user's lines on the way to a wrong site through which no right site passes.

    A function that serves other sites rightly is not at fault; where every line does, the innermost is named.
    """
    lines = callers(op or bad.softmax)
    passed = {(p.file, p.line) for site in good for each in (site.softmax, site.mix) for p in callers(each)}
    return next((p for p in lines if (p.file, p.line) not in passed), lines[0] if lines else None)


def wrong_mask(
    probe: Probe, record: Recording, bad: Site, good: Sequence[Site], test: Callable[[Tensor], bool]
) -> tuple[Place | None, list[Place]]:
    """Where a mask of the wrong form was written, and other lines that take part.

    The line that made it, unless the same tensor serves a right site: then the line that gave it to the wrong one.
    """
    value, made = made_at(probe, record, mask_values(bad), test)
    applied = applied_at(bad)
    used = value is not None and any(value in record.ancestors(mask_values(site)) for site in good)
    primary = own_line(bad, good) if used or made is None else made
    return primary or applied, [p for p in (made, applied, own_line(bad, good)) if p is not None]


def wrong_polarity(
    probe: Probe, record: Recording, bad: Site, good: Sequence[Site], test: Callable[[Tensor], bool]
) -> tuple[Place | None, list[Place]]:
    """Where a mask was taken for its opposite, and other lines that take part.

    The line that applies it, when the user wrote that line and no other mask is applied there rightly. A kernel
    of torch has a fixed convention: whoever made a mask for it in the same pass is at fault.
    """
    value, made = made_at(probe, record, mask_values(bad), test)
    applied = applied_at(bad)
    right = [site for site in good if site.masks and applied_at(site) == applied]
    kernel = bad.product.place == bad.mix.place == applied
    from_run = value is not None and value.op is not None
    if value is not None and any(value in record.ancestors(mask_values(site)) for site in good):
        primary = own_line(bad, good)
    elif made is not None and (right or kernel and from_run):
        primary = made
    else:
        primary = applied
    return primary or made, [p for p in (applied, made) if p is not None]


def _same(a: Tensor, b: Tensor) -> bool:
    """Are queries and keys the same vectors up to length (shared-QK attention, which must not see itself)?"""
    one = a / a.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    two = b / b.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return a.shape == b.shape and bool(torch.allclose(one, two, atol=1e-6))


def causal_forms(probe: Probe) -> list[tuple[Site, CausalForm]]:
    """Every attention that must be causal, with the form of its mask."""
    return [(site, causal_form(probe, site)) for site in probe.sites_of("causal")]


def not_of(sites: Iterable[Site], wrong: Iterable[Site]) -> list[Site]:
    """The sites that are none of the wrong ones."""
    bad = {site.index for site in wrong}
    return [site for site in sites if site.index not in bad]
