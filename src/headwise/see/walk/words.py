"""What a step does, in words: its weights, its scale as measured, what its mask hides, its function."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.doctor.flow import weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.sites import SOFTMAXES, Site, constant, is_product, matrices
from headwise.see.walk.ways import is_data
from headwise.see.walk.whole_masks import Hides

_NAMES = {
    "mul": "times", "add": "add", "sub": "subtract", "div": "divide", "cat": "concatenate", "mean": "mean",
    "native_dropout": "dropout", "_to_copy": "cast", "where": "choose", "index": "pick", "select": "pick",
    "_log_softmax": "log softmax", "_softmax": "softmax", "convolution": "convolution", "bmm": "product",
    "mm": "product", "addmm": "product", "masked_fill": "fill", "constant_pad_nd": "pad", "gather": "pick",
    "im2col": "patches",
    "_unsafe_view": "view", "_reshape_alias": "view", "clone": "copy", "sum": "sum",
    "topk": "choose the largest", "linalg_vector_norm": "length",
}  # fmt: skip
CLOSE = 1e-3


def told(op: Op) -> str:
    """The word for an operation."""
    name = op.name.rstrip("_") or op.name
    return _NAMES.get(op.name, _NAMES.get(name, name.strip("_").replace("_", " ")))


def listed(ops: Sequence[Op], most: int = 3) -> str:
    """The words for some operations, each once, in order."""
    words = list(dict.fromkeys(told(op) for op in sorted(ops, key=lambda op: op.index)))
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def number(value: float) -> str:
    """A factor in few digits."""
    return f"{value:.3g}"


def weights(op: Op) -> str:
    """`linear 16 -> 48`, `convolution 3 -> 64, 4 x 4`."""
    if op.name == "convolution":
        shape = op.inputs[1].shape
        kernel = " x ".join(map(str, shape[2:]))
        return f"convolution {op.inputs[0].shape[1]} -> {op.out.shape[1]}, {kernel}"
    weight = weight_of(op)
    if weight is None and is_product(op):  # of a constant
        weight = next((v for v in matrices(op) if v.trained), None)
    if weight is None or len(op.out.shape) < 1:
        return "product with weights"
    rows, columns = (*weight.shape, 1)[:2] if len(weight.shape) < 3 else weight.shape[-2:]
    if weight is op.inputs[-1]:
        return f"linear {rows} -> {columns}"
    return f"linear {columns} -> {rows}"


def scales(sites: Sequence[Site]) -> str:
    """The factor of all heads, or that they differ, and how."""
    found = list(dict.fromkeys(scale(site) for site in sites))
    if len(found) == 1:
        return found[0]
    each = [told.partition(" (")[0] for told in found]
    usual = 1 / math.sqrt(sites[0].d_head)
    more = ", ..." if len(each) > 4 else ""
    return f"{', '.join(each[:4])}{more}: differs by head (1/sqrt({sites[0].d_head}) = {number(usual)})"


def scale(site: Site) -> str:
    """The factor as measured: `/ sqrt(4)` where it is 1/sqrt(Dh), else what it is and what that would be."""
    if site.has_learned_scale:
        return "learned scale"
    factor, usual = site.scale, 1 / math.sqrt(site.d_head)
    if abs(factor / usual - 1) < CLOSE:
        return f"/ sqrt({site.d_head})"
    told = "not scaled" if abs(factor - 1) < CLOSE else f"x {number(factor)}"
    return f"{told} (1/sqrt({site.d_head}) = {number(usual)})"


def softmax_axes(sites: Sequence[Site]) -> str:
    """Along which axis all heads' weights sum to one, or that they differ."""
    return "; ".join(dict.fromkeys(softmax_axis(site) for site in sites)) + (
        " (heads differ)" if len({softmax_axis(site) for site in sites}) > 1 else ""
    )


def softmax_axis(site: Site) -> str:
    """Which axis the weights sum to one along, as measured."""
    held = site.weights.detach().double()
    along = {}
    for word, axis in (("keys", 2), ("queries", 1)):
        total = held.sum(axis)
        along[word] = float(((total - 1).abs() < 1e-2).double().mean()) if total.numel() else 0.0
    if along["keys"] > 0.5 or along["queries"] < 0.5:
        if along["keys"] > 0.5:
            return "over the keys"
        is_torchs = site.softmax.name in SOFTMAXES  # which sums to one, with what is no key
        return "over the keys and a sink" if is_torchs else "sums to one nowhere"
    return "over the queries"


def hidden(
    sites: Sequence[Site], is_part: bool, shape: tuple[int, ...], whole: Sequence[Hides] | None = None
) -> str:
    """How many pairs of query and key the masks hide; shape: of the scores, queries and keys last.

    is_part: were the sites recorded on a part of the batch? whole: what the masks of all of it hide, where
    that was seen; where it was not, nothing is said beyond the part.
    """
    if whole:
        many, total = sum(each.many for each in whole), sum(each.total for each in whole)
        kinds = {each.kind for each in whole}
        kind = kinds.pop() if len(kinds) == 1 else ""
        alike = {(each.each, each.pattern) for each in whole}
        each = whole[0].each
        if len(alike) == 1 and each and many:  # one matrix of queries and keys stands for all
            many, total = each, total * each // many
        return f"{kind}: hides {many} of {total} pairs".removeprefix(": ") if many else "hides nothing"
    masks = [site.hidden for site in sites]
    many = sum(int(mask.sum()) for mask in masks)
    if not many:
        return "hides nothing"
    total = sum(mask.numel() for mask in masks)
    if is_part:
        return f"hides {many / total:.0%} of a part of the batch"
    kind = pattern(masks)
    rows, columns = shape[-2:] if len(shape) >= 2 else masks[0].shape[1:]
    if kind == "causal" and rows == columns:
        return f"causal: hides {rows * (rows - 1) // 2} of {rows * columns} pairs"
    kind = f"{kind}: " if kind else ""
    same = all(bool((each == masks[0][:1]).all()) for each in masks)
    if same:
        return f"{kind}hides {int(masks[0][0].sum())} of {rows * columns} pairs"
    return f"{kind}hides {many} of {total} pairs"


def pattern(masks: Sequence[Tensor]) -> str:
    """ "causal", "whole keys" (as padding is hidden), both, or "" for any other mask."""
    found: set[str] = set()
    for mask in masks:
        whole = mask.all(1, keepdim=True).expand_as(mask)
        rest = mask & ~whole
        above = torch.ones_like(mask[0]).triu(1)
        if not bool(rest.any()):
            found.add("whole keys")
        elif bool((rest == (above & ~whole)).all()) and mask.shape[1] == mask.shape[2]:
            found.add("causal and whole keys" if bool(whole.any()) else "causal")
        else:
            found.add("")
    return found.pop() if len(found) == 1 else ""


def is_bias(value: Value) -> bool:
    """Does what is added to the scores hold ordinary numbers (a bias of positions), not only a mask's?"""
    if not value.tensor.is_floating_point():
        return False
    held = value.tensor.detach()
    return bool((torch.isfinite(held) & (held != 0) & (held.abs() < 1e3)).any())


def factor(op: Op) -> str:
    """`times 4`, `add 1` for an operation with a number; its bare word for others."""
    others = [v for v in op.inputs if not is_data(v)]
    held = constant(others[0]) if others else (op.numbers() or [None])[-1]
    word = told(op)
    return f"{word} {number(held)}" if held is not None and word in {"times", "add", "divide"} else word
