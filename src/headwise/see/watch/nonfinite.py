"""The first operation that made NaN or an infinity of finite numbers: the calls of the step are run again.

The gradients are looked at before the optimizer uses them, so that the weights are still those of the pass.
Each call is run again as it ran (same arguments, same random numbers) under the doctor's recording: forwards,
and then back from the gradient that its results got.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.doctor.backward import Bad, backward_origin, forward_origin
from headwise.doctor.check import Place
from headwise.doctor.places import place, source
from headwise.doctor.state import State
from headwise.doctor.trace import Recording, Value, recording
from headwise.doctor.untouched import untouched
from headwise.see.watch.calls import Call
from headwise.see.watch.copied import CannotCopy, copied, same_classes
from headwise.see.watch.layers import dense
from headwise.see.watch.place import is_ours
from headwise.see.watch.quiet import random_states
from headwise.see.watch.smaller import mapped, tensors

FEW = 16  # gradients that are looked at after each step of a model whose steps are short
CHEAP = 2_000_000  # elements up to which all gradients are looked at after each step


@dataclass(frozen=True)
class NotFinite:
    """Where numbers stopped being finite, in words, and the line.

    phase: forward, backward, loss, weights (before the step) or unknown.
    """

    step: int
    phase: str
    told: str
    operation: str = ""
    operands: str = ""
    file: str = ""
    line: int = 0
    module: str = ""
    is_half: bool = False

    @property
    def where(self) -> str:
        """The line as a person names it, with its code."""
        if not self.file:
            return ""
        return f"{place(self.file, self.line)}   {source(self.file, self.line)}".rstrip()


class Guard:
    """Looks whether gradients are finite: all of a small model's each step, a few of a larger one's.

    NaN made going forward reaches every gradient, made going back all gradients of earlier layers: a few that
    are spread over the depth, small ones where there are such, show it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._every = list(parameters)
        total = sum(p.numel() for p in self._every)
        small = [p for p in self._every if p.numel() <= CHEAP // FEW] or self._every
        spread = sorted({n * (len(small) - 1) // (FEW - 1) for n in range(FEW)}) if small else []
        is_short = total <= CHEAP and len(self._every) <= FEW
        self._few = self._every if is_short else [small[n] for n in spread]

    def is_finite(self, *, all_of_them: bool) -> bool:
        """Are the gradients finite? Waits for the device."""
        grads = [g for p in (self._every if all_of_them else self._few) if (g := dense(p)) is not None]
        if not grads:
            return True
        with torch.no_grad():
            sizes = cast("list[Tensor]", cast("Any", torch)._foreach_norm(grads))
            device = sizes[0].device
            total = torch.stack([size.float().to(device) for size in sizes]).sum()
        if bool(torch.isfinite(total)):
            return True
        return all(bool(torch.isfinite(g).all()) for g in grads)  # squares overflow before numbers do


def origin(step: int, model: nn.Module, calls: Sequence[Call]) -> NotFinite:
    """Find the operation. Errors: none; what cannot be found out is said."""
    broken = [name for name, p in model.named_parameters() if not bool(torch.isfinite(p.detach()).all())]
    if broken:
        few = ", ".join(broken[:3]) + (f" and {len(broken) - 3} more" if len(broken) > 3 else "")
        return NotFinite(step, "weights", f"some held such numbers before this step already: {few}")
    told = ""
    states = random_states()
    for call in calls:
        try:
            with untouched(model), torch.enable_grad():
                _draw_again(call.random)
                found = _run_again(step, model, call)
        except Exception as error:
            told = f"running the step again failed: {type(error).__name__}: {str(error)[:200]}"
            continue
        finally:
            states()
        if found is not None:
            return found
    if not calls:
        told = "no call of the model was seen in this step; let watch.called wrap what the loop calls"
    elif not told:
        if any(not bool(torch.isfinite(g).all()) for call in calls for g in call.gradients.values()):
            told = (
                "the gradient came so from the loss, or from what stands between it and the model's result; "
                "log(0), sqrt(0) and a division by 0 do that"
            )
            return NotFinite(step, "loss", told)
        told = (
            "run again, the pass was finite, forwards and backwards: it came from outside of it, or from "
            "what is not the same twice (a counter, numbers drawn elsewhere, an input changed since)"
        )
    return NotFinite(step, "unknown", told)


def _draw_again(random: Sequence[Tensor]) -> None:
    if random:
        torch.set_rng_state(random[0])
        if len(random) > 1:
            torch.cuda.set_rng_state_all(list(random[1:]))


def _run_again(step: int, model: nn.Module, call: Call) -> NotFinite | None:
    """One call, recorded, and back; None where all of it is finite."""

    def own(tensor: Tensor) -> Tensor:
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    given = mapped(call.arguments, own)
    with contextlib.ExitStack() as stack:
        try:
            twin, run, given = copied(model, call.run, given)
        except CannotCopy:
            twin, run = model, call.run
            stack.enter_context(State(twin).kept())
        with same_classes(model), recording(twin, tensors(given)) as record:
            out = run(*given[0], **given[1])
        results = tensors(out) or tensors(list(getattr(out, "__dict__", {}).values()))
        for result in results:
            value = record.value_of(result)
            if value is not None and result.is_floating_point() and _is_bad(result):
                bad = forward_origin(value)
                return replace(_told(step, bad), is_half=_is_half(record, bad))
        bad = _backwards(record, call, results)
        if bad is None:
            return None
        return replace(_told(step, bad), is_half=_is_half(record, bad))


def _is_half(record: Recording, bad: Bad) -> bool:
    """Does the operation compute in half precision?"""
    halves = {torch.float16, torch.bfloat16}
    named = [op for op in record.ops if op.name == bad.name and op.outputs and op.place == bad.place]
    return any(t.tensor.dtype in halves for op in named for t in (*op.inputs, *op.outputs))


def _is_bad(tensor: Tensor) -> bool:
    """NaN or +inf; -inf among scores is how a token is forbidden."""
    held = tensor.detach()
    return bool((torch.isnan(held) | (held == torch.inf)).any()) or (
        held.dim() == 0 and not bool(torch.isfinite(held))
    )


def _backwards(record: Recording, call: Call, results: Sequence[Tensor]) -> Bad | None:
    """Back from the loss among the results, else from the gradients that they got, else from random ones."""
    ends = [(place, t) for place, t in enumerate(results) if t.requires_grad]
    if not ends:
        return None
    scalar = next((t for _, t in ends if t.dim() == 0), None)
    if scalar is not None and call.gradients and len(ends) > 1:
        scalar = None
    if scalar is not None:
        starts, grads = [scalar], [torch.ones_like(scalar)]
    else:
        got = [(t, call.gradients.get(place)) for place, t in ends]
        kept = [(t, g) for t, g in got if g is not None and g.shape == t.shape]
        if any(not bool(torch.isfinite(g).all()) for _, g in kept):
            return None  # it came in so
        generator = torch.Generator().manual_seed(0)
        if not kept:
            kept = [(t, torch.randn(t.shape, generator=generator).to(t) / t.numel()) for _, t in ends]
        starts, grads = [t for t, _ in kept], [g for _, g in kept]
    inner = [
        v
        for v in record.values
        if v.op is not None and v.tensor.requires_grad and v.tensor.is_floating_point()
    ]
    leaves = [v for v in record.values if v.op is None and v.tensor.requires_grad]
    wanted = [v.tensor for v in (*inner, *leaves)]
    back = torch.autograd.grad(starts, wanted, grads, allow_unused=True)
    pairs = zip((*inner, *leaves), cast("tuple[Tensor | None, ...]", back), strict=True)
    values: dict[Value, Tensor] = {v: grad for v, grad in pairs if grad is not None}
    if all(bool(torch.isfinite(grad).all()) for grad in values.values()):
        return None
    return backward_origin(record, values, 1 << 60)


def _told(step: int, bad: Bad) -> NotFinite:
    """The doctor's words for it, with the user's line."""
    at = bad.place if bad.place is not None and not is_ours(bad.place) else _outer(bad.callers)
    before = bad.before
    began = f"; {bad.began}" if bad.began else ""
    if before is not None and not bad.is_filled and not is_ours(before):
        at = before  # where an operation overflowed, that is the cause
    _, _, operands = bad.evidence.partition(" at " if bad.phase == "backward" else " of ")
    operands = operands.partition(", though")[0]
    return NotFinite(
        step, bad.phase, bad.evidence + began, bad.name, operands,
        at.file if at is not None else "", at.line if at is not None else 0, bad.module,
    )  # fmt: skip


def _outer(callers: Sequence[Place]) -> Place | None:
    return next((each for each in callers if not is_ours(each)), None)
