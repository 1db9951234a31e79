"""Which inputs say where a sequence is padded: a mask beside it, or the number of real tokens in each row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headwise.doctor.subject import Layout, Subject

if TYPE_CHECKING:
    from headwise.doctor.adapt import Leaf, Stream

SOURCE_NAMES = ("src", "source", "enc", "question", "context")
TARGET_NAMES = ("decoder", "tgt", "trg", "target", "dec_", "answer")


def says(name: str, words: tuple[str, ...]) -> bool:
    """Does a name hold one of these words?"""
    return any(word in name.lower() for word in words)


def with_mask(stream: Stream, subject: Subject, roles: tuple[Leaf, ...], leaves: list[Tensor]) -> Stream:
    """Find the input that marks this stream's padding, and which of its values means a real token."""
    shape = tuple(leaves[stream.leaf].shape[:2])
    masks = [i for i, leaf in enumerate(roles) if leaf.role == "mask" and tuple(leaves[i].shape) == shape]
    marks = [i for i in masks if not is_triangle(leaves[i])]
    if stream.name == "target":
        marks = [i for i in marks if says(roles[i].name, TARGET_NAMES)]
    elif stream.name == "source":
        marks = [i for i in marks if not says(roles[i].name, TARGET_NAMES)]
    if not marks:
        return stream
    mask = leaves[marks[0]]
    if mask.is_floating_point() and bool((mask < 0).any()):
        return replace(stream, keep_leaf=marks[0], keep_is=0.0)
    keep_is = 1.0
    if subject.pad_id is not None and stream.is_ids:
        pad = leaves[stream.leaf] == subject.pad_id
        if bool(pad.any()) and bool((mask.bool() == pad).float().mean() > 0.9):
            keep_is = 0.0
    elif mask.dtype == torch.bool and "pad" in roles[marks[0]].name.lower():
        keep_is = 0.0
    return replace(stream, keep_leaf=marks[0], keep_is=keep_is)


def is_triangle(mask: Tensor) -> bool:
    """As many rows as positions, and a causal mask: its axes are queries and keys, not rows and positions."""
    if mask.shape[0] != mask.shape[1] or len(mask) < 2:
        return False
    marked = mask < 0 if mask.is_floating_point() and bool((mask < 0).any()) else mask.bool()
    ones = torch.ones_like(marked)
    return any(torch.equal(marked, form) for form in (ones.tril(), ones.tril(-1), ones.triu(), ones.triu(1)))


def with_counts(
    streams: tuple[Stream, ...],
    subject: Subject,
    roles: tuple[Leaf, ...],
    leaves: list[Tensor],
    layout: Layout,
) -> tuple[Stream, ...]:
    """Find the inputs [B] that count the real tokens in each row of a stream.

    Where a pad id tells which tokens are real, every count must be right. Where none does, the name must
    speak of lengths, and the longest row must be as long as the batch: class labels are small numbers too.
    """
    free = [i for i, leaf in enumerate(roles) if leaf.role == "other" and _may_count(leaves[i])]
    found: list[Stream] = []
    for stream in streams:
        fits = [i for i in free if _counts(stream, roles[i].name, leaves[i], subject, leaves, layout)]
        other = SOURCE_NAMES if stream.name == "target" else TARGET_NAMES
        fits = [i for i in fits if len(streams) == 1 or not says(roles[i].name, other)]
        if fits:
            free.remove(fits[0])
            stream = replace(stream, count_leaf=fits[0])
        found.append(stream)
    return tuple(found)


def _may_count(leaf: Tensor) -> bool:
    whole = not (leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool)
    return whole and leaf.dim() == 1 and leaf.numel() > 0


def _counts(
    stream: Stream, name: str, counts: Tensor, subject: Subject, leaves: list[Tensor], layout: Layout
) -> bool:
    values = leaves[stream.leaf]
    if values.dim() < 2:
        return False
    values = values.transpose(0, 1) if layout == "time-major" else values  # batch first
    if len(counts) != len(values):
        return False
    length = values.shape[1]
    if stream.is_ids and values.dim() == 2 and subject.pad_id is not None:
        pad = values == subject.pad_id
        if stream.name == "target":
            pad = pad.clone()
            pad[:, 0] = False  # the pad token often starts the decoder
        known = bool(pad.any()) or "len" in name.lower()
        return known and torch.equal(counts.long().cpu(), (~pad).sum(1).cpu())
    return "len" in name.lower() and int(counts.min()) >= 1 and int(counts.max()) == length
