"""What a step does, in words: its weights, its scale as measured, what its mask hides, its function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.doctor.flow import weight_of
from headwise.doctor.graph import Op, Value
from headwise.doctor.sites import SOFTMAXES, Site, constant
from headwise.see.walk.ways import is_data

_NAMES = {
    "mul": "times", "add": "add", "sub": "subtract", "div": "divide", "cat": "concatenate", "mean": "mean",
    "native_dropout": "dropout", "_to_copy": "cast", "where": "choose", "index": "pick", "select": "pick",
    "_log_softmax": "log softmax", "_softmax": "softmax", "convolution": "convolution", "bmm": "product",
    "mm": "product", "addmm": "product", "masked_fill": "fill", "constant_pad_nd": "pad", "gather": "pick",
    "im2col": "patches",
    "_unsafe_view": "view", "_reshape_alias": "view", "clone": "copy", "sum": "sum",
    "topk": "choose the largest", "linalg_vector_norm": "length",
}  # fmt: skip
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu (tanh)": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "gelu (sigmoid)": lambda x: x * torch.sigmoid(1.702 * x),
    "relu squared": lambda x: F.relu(x).square(),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "elu": F.elu,
    "mish": F.mish,
}
_LOOKED_AT = 4096  # elements that tell one activation from another
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
    data = next((v for v in op.inputs if v.sources), None)
    if weight is None or data is None or len(op.out.shape) < 1:
        return "product with weights"
    rows, columns = (*weight.shape, 1)[:2] if len(weight.shape) < 3 else weight.shape[-2:]
    if weight is op.inputs[-1]:
        return f"linear {rows} -> {columns}"
    return f"linear {columns} -> {rows}"


def scale(site: Site) -> str:
    """The factor as measured: `/ sqrt(4)` where it is 1/sqrt(Dh), else what it is and what that would be."""
    if site.has_learned_scale:
        return "learned scale"
    factor, usual = site.scale, 1 / math.sqrt(site.d_head)
    if abs(factor / usual - 1) < CLOSE:
        return f"/ sqrt({site.d_head})"
    told = "not scaled" if abs(factor - 1) < CLOSE else f"x {number(factor)}"
    return f"{told} (1/sqrt({site.d_head}) = {number(usual)})"


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


def hidden(sites: Sequence[Site], is_part: bool, shape: tuple[int, ...]) -> str:
    """How many pairs of query and key the masks hide; shape: of the scores, queries and keys last."""
    masks = [site.hidden for site in sites]
    many = sum(int(mask.sum()) for mask in masks)
    if not many:
        return "hides nothing"
    total = sum(mask.numel() for mask in masks)
    kind = _pattern(masks)
    rows, columns = shape[-2:] if len(shape) >= 2 else masks[0].shape[1:]
    if kind == "causal" and rows == columns:
        return f"causal: hides {rows * (rows - 1) // 2} of {rows * columns} pairs"
    kind = f"{kind}: " if kind else ""
    if is_part:
        return f"{kind}hides {many / total:.0%} of a part of the batch"
    same = all(bool((each == masks[0][:1]).all()) for each in masks)
    if same:
        return f"{kind}hides {int(masks[0][0].sum())} of {rows * columns} pairs"
    return f"{kind}hides {many} of {total} pairs"


def _pattern(masks: Sequence[Tensor]) -> str:
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


@torch.no_grad()
def activation(entered: Value, out: Value) -> str:
    """Which known function a step is, element by element, told from its numbers; "" where none fits."""
    if entered.shape != out.shape or not entered.tensor.numel():
        return ""
    x = entered.tensor.detach().reshape(-1)[:_LOOKED_AT].double()
    y = out.tensor.detach().reshape(-1)[:_LOOKED_AT].double()
    tight = 1e-2 if out.tensor.dtype in {torch.bfloat16, torch.float16} else 1e-5
    for name, function in _ACTIVATIONS.items():
        gap = (function(x) - y).abs()
        if bool((gap <= tight * (1e-2 + x.abs())).all()):
            return name
    return ""


def factor(op: Op) -> str:
    """`times 4`, `add 1` for an operation with a number; its bare word for others."""
    others = [v for v in op.inputs if not is_data(v)]
    held = constant(others[0]) if others else (op.numbers() or [None])[-1]
    word = told(op)
    return f"{word} {number(held)}" if held is not None and word in {"times", "add", "divide"} else word
