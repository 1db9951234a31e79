"""Make what enters a norm a thousand times larger: by how much had epsilon damped it? And in half precision:
does a blank row come through, forwards and backwards?
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from headwise.doctor.adapt import twin
from headwise.doctor.blame import callers, constructed, related
from headwise.doctor.check import Found, NotApplicable, Place, Tried, check
from headwise.doctor.norms import Norm, ask, find_norms, is_torchs, norms
from headwise.doctor.probe import Probe
from headwise.doctor.trace import recording
from headwise.doctor.untouched import default_dtype, seed_everything

LEAST = 9e-4  # no public model adds more than 1e-3 to a variance; 1e-5 against small embeddings is usual
DAMPED = 0.95


@check(
    id="HW410",
    title="A norm's epsilon is wrong for its inputs or its precision",
    why="Too large, it damps small inputs instead of normalising them; too small, a blank row becomes NaN.",
    fix="Give eps=1e-5 (1e-6 for RMSNorm), and compute statistics in float32 in a model of half precision.",
    explains={
        "cannot-memorise",
        "first-nan",
        "half-precision-overflow",
        "depth-unstable",
        "attention-collapsed",
    },
)
def eps_wrong(probe: Probe) -> Iterator[Found | Tried]:
    found = [norm for norm in norms(probe) if norm.kind != "batch"]
    if not found:
        raise NotApplicable("no norm was recognised")
    for norm in found:
        share, eps = _damping(probe, norm)
        if share < DAMPED and eps >= LEAST:
            place = _written(probe, norm)
            yield Found(
                f"epsilon (about {eps:.1g}) leaves {share:.0%} of the size that the norm should give: its "
                f"inputs have a variance of {_variance(norm.entered.tensor):.1g}",
                at=place,
                module=norm.module,
                severity="error" if share < 0.7 else "warning",
                related=tuple(related([norm.place, *callers(norm.op)], "the norm is applied here", place)),
            )
            return
    dtype = next((p.dtype for p in probe.user_model.parameters()), torch.float32)
    if dtype in {torch.float16, torch.bfloat16}:
        yield from _in_half(probe, found, dtype)
    yield Tried(
        f"compared what epsilon adds in each of {len(found)} norms with its inputs ({str(dtype)[6:]})"
    )


def _damping(probe: Probe, norm: Norm) -> tuple[float, float]:
    """The share of its size that epsilon leaves of a norm's result, and the epsilon that this means."""
    entered = norm.entered.tensor
    if not entered.numel() or not bool(torch.isfinite(entered).all()) or _variance(entered) == 0:
        return 1.0, 0.0
    usual, larger, largest = (_size(ask(probe.base.record, norm, c * entered)) for c in (1, 1e3, 1e6))
    if not largest or (not 0.9 < larger / largest < 1.1 and not larger < largest):
        return 1.0, 0.0
    share = usual / largest
    return share, _variance(entered) * (share**-2 - 1) if 0 < share < 1 else 0.0


def _size(tensor: Tensor) -> float:
    """Of the middle one of the vectors along the last axis, its spread."""
    return float(tensor.detach().double().var(-1, correction=0).flatten().median().sqrt())


def _variance(tensor: Tensor) -> float:
    return float(tensor.detach().double().var(-1, correction=0).flatten().median())


def _in_half(probe: Probe, known: list[Norm], dtype: torch.dtype) -> Iterator[Found]:
    """The user's model in its own precision: a blank row through every norm."""
    model, _ = twin(probe.user_model, None)
    model.eval()
    leaves = tuple(
        leaf.to(dtype) if leaf.is_floating_point() else leaf.clone() for leaf in probe.batch.leaves
    )
    seed_everything()
    try:
        with torch.no_grad(), default_dtype(dtype), recording(model, leaves) as record:
            probe.adapted.call(model, leaves)
    except RuntimeError as error:
        raise NotApplicable(f"the model does not run in {str(dtype)[6:]} here: {str(error)[:80]}") from error
    for wide, norm in zip(known, find_norms(record), strict=False):
        blank = torch.zeros_like(norm.entered.tensor)
        if norm.kind == "written":
            here, there = ask(record, norm, blank), ask(probe.base.record, wide, blank)
            shows = "comes out of the norm as NaN or infinity"
            is_lost = not bool(torch.isfinite(here).all()) and bool(torch.isfinite(there).all())
        else:
            is_lost, shows = _gradient_lost(norm, blank), "gets a gradient of inf or nan from the norm"
        if is_lost:
            place = _written(probe, norm)
            yield Found(
                f"in {str(dtype)[6:]} a blank row {shows}: its epsilon is below what that precision can hold",
                at=place,
                module=norm.module,
                severity="error" if norm.kind == "written" else "warning",
                related=tuple(related([norm.place, *callers(norm.op)], "the norm is applied here", place)),
            )
            return


def _gradient_lost(norm: Norm, blank: Tensor) -> bool:
    """Does the gradient of a blank row overflow in torch's own layer norm?"""
    if norm.kind != "layer" or not norm.op.numbers():
        return False
    with torch.enable_grad():
        x = blank.clone().requires_grad_()
        out = torch.nn.functional.layer_norm(x, norm.op.args[1], eps=norm.op.numbers()[-1])
        torch.autograd.backward(out, torch.linspace(-1, 1, out.numel()).view(out.shape).to(out))
    return x.grad is not None and not bool(torch.isfinite(x.grad).all())


def _written(probe: Probe, norm: Norm) -> Place | None:
    """Where epsilon was chosen: at the constructor of torch's norms, in the formula of others."""
    if is_torchs(probe, norm.module):
        return constructed(probe, norm.module) or norm.place
    return norm.place
