"""Who wrote a mask: the tests that tell one from other tensors, and the line at which it went wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import torch
from torch import Tensor

from headwise.doctor.blame import applied_at, callers, made_places
from headwise.doctor.check import Place
from headwise.doctor.masks import later
from headwise.doctor.probe import Probe
from headwise.doctor.sites import Site
from headwise.doctor.trace import Op, Recording, Value


def two_valued(tensor: Tensor) -> bool:
    """Does a tensor hold exactly two different numbers, as a mask does?"""
    if not 1 < tensor.numel() <= 2**22 or tensor.is_complex():
        return False
    low, high = tensor.min(), tensor.max()
    return bool(low != high) and bool(((tensor == low) | (tensor == high)).all())


def is_flag(tensor: Tensor) -> bool:
    """Does a tensor say yes or no to places, and the same to all of them?"""
    return tensor.dtype is torch.bool and tensor.numel() > 1 and bool((tensor == tensor.flatten()[0]).all())


def by_place(tensor: Tensor) -> bool:
    """Is it a mask that differs by query and by key: a triangle, a band, blocks?"""
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 3 or not two_valued(tensor):
        return False
    one, two = tensor[..., :1, :] != tensor, tensor[..., :, :1] != tensor
    return bool(one.any()) and bool(two.any())


def alike(tensor: Tensor) -> bool:
    """Is it a mask with the same number at every place, which hides nothing (or everything)?"""
    return (
        1 < tensor.numel() <= 2**22
        and min(tensor.shape[-2:]) > 2
        and bool((tensor == tensor.flatten()[0]).all())
    )


def triangle(tensor: Tensor, length: int) -> bool:
    """Is it a causal mask of this length, whatever its values mean?"""
    if tensor.dim() < 2 or tuple(tensor.shape[-2:]) != (length, length) or tensor.numel() != length * length:
        return False
    if not two_valued(tensor):
        return False
    square, future = tensor.reshape(length, length), later(length, length, device=tensor.device)
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
    lines: Collection[Place] = (),
) -> tuple[Value | None, Place | None]:
    """The first tensor on the way to these masks that passes the test, and its line.

    Left out: what leads to the masks in `but`, and what was made on one of these lines.
    """
    for value in sorted(
        record.ancestors(masks) - record.ancestors(but), key=lambda v: (v.op is not None, v.index)
    ):
        if value.trained or not test(value.tensor):
            continue
        if value.op is None:
            places = made_places(probe, value)
            if places:
                return value, places[0]
            continue
        if value.op.place is not None and value.op.place not in lines:
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

    The line that made it, unless the same tensor serves a right site: then the line that handed it over.
    """
    made, applied, called = _own_making(probe, record, bad, good, test), applied_at(bad), own_line(bad, good)
    first = made_at(probe, record, mask_values(bad), test)[1]
    return made or called or applied, [p for p in (made, applied, called, first) if p is not None]


def wrong_polarity(
    probe: Probe, record: Recording, bad: Site, good: Sequence[Site], test: Callable[[Tensor], bool]
) -> tuple[Place | None, list[Place]]:
    """Where a mask was taken for its opposite, and other lines that take part.

    The line that applies it, if the user wrote that line and no other mask is applied there rightly. A kernel
    of torch has a fixed convention: whoever made a mask for it in the same pass is at fault.
    """
    value, first = made_at(probe, record, mask_values(bad), test)
    made, applied = _own_making(probe, record, bad, good, test), applied_at(bad)
    elsewhere = [site for site in good if site.masks and applied_at(site) == applied]
    kernel = bad.product.place == bad.mix.place == applied
    from_run = value is not None and value.op is not None
    at_maker = elsewhere or (kernel and from_run)
    primary = own_line(bad, good) if made is None else made if at_maker else applied
    return primary or applied, [p for p in (applied, made, first) if p is not None]


def _own_making(
    probe: Probe, record: Recording, bad: Site, good: Sequence[Site], test: Callable[[Tensor], bool]
) -> Place | None:
    """The line that made what a wrong site's mask does not share with those of right sites."""
    theirs = [v for site in good for v in mask_values(site)]
    lines = {v.op.place for v in record.ancestors(theirs) if v.op is not None and v.op.place is not None}
    return made_at(probe, record, mask_values(bad), test, theirs, lines)[1]


def not_of(sites: Iterable[Site], wrong: Iterable[Site]) -> list[Site]:
    """The sites that are none of the wrong ones."""
    bad = {site.index for site in wrong}
    return [site for site in sites if site.index not in bad]
