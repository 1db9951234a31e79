"""The name of an activation: from the one operation that it is, or measured where it is written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.doctor.graph import Op, Recording, Value

_NAMES = {
    "relu": "relu", "silu": "silu", "mish": "mish", "tanh": "tanh", "sigmoid": "sigmoid", "celu": "celu",
    "leaky_relu": "leaky relu", "hardswish": "hardswish", "hardsigmoid": "hardsigmoid",
    "softplus": "softplus", "log_sigmoid_forward": "log sigmoid", "softshrink": "softshrink",
    "hardshrink": "hardshrink", "threshold": "threshold", "_prelu_kernel": "prelu", "prelu": "prelu",
    "rrelu_with_noise": "rrelu", "sin": "sin", "cos": "cos", "exp": "exp", "erf": "erf", "glu": "glu",
}  # fmt: skip
_BY_HAND: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu (tanh)": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "gelu (sigmoid)": lambda x: x * torch.sigmoid(1.702 * x),
    "relu squared": lambda x: F.relu(x).square(),
    "tanh": torch.tanh,
    "tanhshrink": F.tanhshrink,
    "sigmoid": torch.sigmoid,
    "elu": F.elu,
    "selu": F.selu,
    "relu6": F.relu6,
    "mish": F.mish,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "leaky relu": F.leaky_relu,
    "hardswish": F.hardswish,
}
ACTIVATIONS = {*_NAMES, "gelu", "elu", "hardtanh"}  # torch tags not all of them as element by element
_SELU = (1.6732632423543772, 1.0507009873554805)
_FAR = 6.0  # what is tried reaches from -6 to 6: there all of these differ from one another
_LEAST = 256  # numbers tried


def is_bend(op: Op) -> bool:
    """Does an operation work element by element?"""
    return op.pointwise or op.name in ACTIVATIONS or op.name.rstrip("_") in ACTIVATIONS


def activation(record: Recording, ops: Sequence[Op], entered: Value) -> str:
    """What operations that follow one another compute, element by element; "" for what has no name.

    One operation is what its name and its arguments say. Several are run again on numbers that tell the
    known functions apart, whatever the batch held.
    """
    if len(ops) == 1:
        return _named(ops[0])
    name = _measured(record, entered, ops[-1].out)
    return f"{name} (by hand)" if name else ""


def _named(op: Op) -> str:
    name = op.name.rstrip("_") or op.name
    numbers = op.numbers()
    if name == "gelu":
        return "gelu (tanh)" if op.kwargs.get("approximate", "none") == "tanh" else "gelu"
    if name == "elu":
        alpha, scale, inner = (*numbers, *(1.0, 1.0, 1.0)[len(numbers) :])[:3]
        if all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip((alpha, scale), _SELU, strict=True)):
            return "selu"
        return f"elu, alpha {alpha:g}" if alpha != 1 else "elu" if scale == inner == 1 else ""
    if name == "hardtanh":
        low, high = (*numbers, *(-1.0, 1.0)[len(numbers) :])[:2]
        return "relu6" if (low, high) == (0, 6) else f"hardtanh, {low:g} to {high:g}"
    if name in {"clamp", "clamp_min"}:
        ends = [x for x in (*op.args[1:], *op.kwargs.values()) if x is not None]
        is_lower = name == "clamp_min" or (len(op.args) > 1 and op.args[1] is not None) or "min" in op.kwargs
        return "relu" if ends == [0] and is_lower else ""
    return _NAMES.get(name, "")


@torch.no_grad()
def _measured(record: Recording, entered: Value, out: Value) -> str:
    count = entered.tensor.numel()
    if entered.shape != out.shape or not count or not entered.tensor.is_floating_point():
        return ""
    rough = entered.tensor.dtype in {torch.bfloat16, torch.float16}
    tried: list[tuple[Tensor, Tensor]] = []
    for place in range(-(-_LEAST // count)):
        x = _numbers(entered.tensor, place)
        try:
            (y,) = record.replay({entered: x}, [out])
        except (RuntimeError, ValueError):
            return ""
        tried.append((x.double(), y.double()))
    close = 2e-2 if rough else 1e-5
    for name, function in _BY_HAND.items():
        if all(bool(((function(x) - y).abs() <= close * (1 + x.abs())).all()) for x, y in tried):
            return name
    return ""


def _numbers(like: Tensor, place: int) -> Tensor:
    """Numbers from -_FAR to _FAR, other ones each time, in no order that an axis could have."""
    made = torch.Generator().manual_seed(place)
    drawn = torch.rand(like.shape, generator=made, dtype=torch.float64) * 2 - 1
    return (drawn * _FAR).to(like.dtype).to(like.device)
