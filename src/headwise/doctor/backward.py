"""One recorded training pass, forwards and back: what got a gradient, where it was lost, where NaN began.

It runs the user's batch in the model's own dtype, on a copy that is thrown away, so it overflows where
training would. What the checks tell is kept, not the tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import logits_of
from headwise.doctor.batch import Batch
from headwise.doctor.check import NotApplicable, Place
from headwise.doctor.cuts import Cut, cuts, parameter_names
from headwise.doctor.probe import Probe
from headwise.doctor.trace import Op, Recording, Value, recording
from headwise.doctor.weights import depended_on, parameters_read

FILLS = {
    "masked_fill",
    "masked_fill_",
    "full",
    "full_like",
    "fill_",
    "fill",
    "where",
    "scalar_tensor",
    "new_full",
}


@dataclass(frozen=True)
class Bad:
    """The first operation that makes NaN or an infinity of finite numbers.

    phase: "forward", "loss" or "backward"; before: the line that made the infinity which became
    NaN, if another;
    began: how it did.
    """

    phase: str
    name: str
    place: Place | None
    module: str
    evidence: str
    before: Place | None = None
    began: str = ""
    is_filled: bool = False  # the infinity was filled in on purpose, as masks are
    callers: tuple[Place, ...] = ()
    leaf: Value | None = None  # what held it before the pass: a parameter, an input


@dataclass(eq=False)
class Passed:
    """What one training pass showed; `states` is by parameter: "none", "zero", "finite" or "bad"."""

    loss: float | None = None
    error: Exception | None = None
    error_place: Place | None = None
    is_half: bool = False
    has_loss: bool = False
    states: dict[str, str] = field(default_factory=lambda: {})
    read: set[str] = field(default_factory=lambda: set())
    depends: set[str] = field(default_factory=lambda: set())
    cuts: list[Cut] = field(default_factory=lambda: [])
    bad: Bad | None = None


def training_pass(probe: Probe) -> Passed:
    """The pass, made once: the user's loss where given, else the logits against fixed random numbers."""
    return probe.memo("training pass", lambda: _pass(probe))


def _pass(probe: Probe) -> Passed:
    passed = Passed()
    subject = probe.subject
    passed.has_loss = subject.loss is not None and subject.targets is not None
    if probe.is_large:
        probe.release()
    with probe.training_copy() as (model, _), torch.enable_grad():
        leaves = tuple(_own(leaf, model, probe) for leaf in Batch.given(probe.adapted).leaves)
        with recording(model, leaves) as record:
            try:
                output = probe.adapted.call(model, leaves)
                logits = logits_of(output)
                before_loss = len(record.ops)
                loss = _loss(probe, output, logits, model) if logits is not None else None
            except Exception as error:
                passed.error = error
                passed.error_place = record.ops[-1].place if record.ops else None
                return passed
        if logits is None or loss is None:
            raise NotApplicable("the output holds no tensor of scores")
        passed.read = parameters_read(record)
        passed.is_half = any(
            v.op is not None and v.trained and v.tensor.dtype in {torch.float16, torch.bfloat16}
            for v in record.values
        )
        passed.loss = float(loss.detach())
        ends = [v for t in (logits, loss) if (v := record.value_of(t)) is not None]
        passed.depends = parameter_names(depended_on(ends))
        try:
            _differentiate(passed, model, record, loss, ends, before_loss)
        except RuntimeError as error:  # see training-stops
            passed.error = error
    return passed


def _own(leaf: Tensor, model: nn.Module, probe: Probe) -> Tensor:
    first = next((p for p in model.parameters() if p.is_floating_point()), None)
    if first is not None and leaf.is_floating_point() and first.dtype in {torch.float16, torch.bfloat16}:
        leaf = leaf.to(first.dtype)
    return (leaf.to(probe.device) if probe.device else leaf).clone()


def _loss(probe: Probe, output: object, logits: Tensor, model: nn.Module) -> Tensor:
    subject = probe.subject
    if subject.loss is not None and subject.targets is not None:
        targets = subject.targets
        value = subject.loss(output, targets.to(probe.device) if probe.device else targets)
        if not isinstance(value, Tensor):
            raise NotApplicable("the loss is no tensor")
        return value.mean() if value.dim() else value
    generator = torch.Generator().manual_seed(0)
    against = torch.randn(logits.shape, generator=generator).to(logits.device)
    ordinary = torch.isfinite(logits) & (logits.abs() < 1e30)  # a vocabulary may be masked on purpose
    return (logits.float().masked_fill(~ordinary, 0.0) * against).mean()


def _differentiate(
    passed: Passed, model: nn.Module, record: Recording, loss: Tensor, ends: list[Value], before_loss: int
) -> None:
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    passed.states = dict.fromkeys(trainable, "none")
    if loss.requires_grad and trainable:
        for name, p in trainable.items():
            p.register_post_accumulate_grad_hook(_told(passed, name))  # pyright: ignore[reportUnknownMemberType]
        loss.backward(retain_graph=True)  # pyright: ignore[reportUnknownMemberType]
    result = _bad_end(record, ends)
    if result is not None:
        passed.bad = forward_origin(result, before_loss)
    elif any(state == "bad" for state in passed.states.values()):
        inner = [
            v
            for v in record.values
            if v.op is not None and v.tensor.requires_grad and v.tensor.is_floating_point()
        ]
        back = torch.autograd.grad(loss, [v.tensor for v in inner], allow_unused=True, retain_graph=True)
        found_back = cast("tuple[Tensor | None, ...]", back)
        values = {v: grad for v, grad in zip(inner, found_back, strict=True) if grad is not None}
        passed.bad = backward_origin(record, values, before_loss)
    if passed.bad is None:
        passed.cuts = cuts(passed.states, record, ends[-1:])


def _told(passed: Passed, name: str) -> Callable[[Tensor], None]:
    """A hook that looks at a gradient once it is there and lets it go: a large model has no room for all."""

    def hook(p: Tensor) -> None:
        passed.states[name] = _state(p.grad)
        p.grad = None

    return hook


def _state(grad: Tensor | None) -> str:
    if grad is None:
        return "none"
    if grad.is_sparse:
        grad = grad.coalesce().values()
    if not grad.numel():
        return "zero"
    size = float(
        grad.min().abs() + grad.max().abs()
    )  # NaN and infinities pass through, without a second tensor
    if not math.isfinite(size):
        return "bad"
    return "finite" if size else "zero"


# Where NaN begins


def _bad_end(record: Recording, ends: list[Value]) -> Value | None:
    """The loss or the logits, where they hold NaN, +inf (or the loss -inf)."""
    for value in ends:
        held = value.tensor
        if held.is_floating_point() and bool((torch.isnan(held) | (held == math.inf)).any()):
            return value
    last = ends[-1].tensor if ends else None
    return ends[-1] if last is not None and last.dim() == 0 and not bool(torch.isfinite(last)) else None


def forward_origin(end: Value, before_loss: int = 1 << 60) -> Bad:
    """Back from a bad value to the operation that made NaN (or infinity) of finite numbers."""
    value, seen = end, list[Value]()
    while value.op is not None:
        seen.append(value)
        worse = [v for v in value.op.inputs if _badness(v)]
        nan = [v for v in worse if _badness(v) == 2]
        if (_badness(value) == 2 and not nan) or not worse:
            break
        value = max(nan or worse, key=lambda v: (v.trained, v.sources != 0, -v.index))
    op = value.op
    if op is None:
        first = next((user.place for user in value.users if user.place is not None), None)
        held = f"{value.name or 'a constant'} itself holds {_what(value)}"
        return Bad("forward", "", first, "", held, leaf=value)
    before, began = _infinity(op) if _badness(value) == 2 else (None, "")
    phase = "loss" if op.index >= before_loss else "forward"
    return Bad(
        phase, op.name, op.place, op.module, f"{op.name} makes {_what(value)} of {ranges(op)}",
        before.place if before is not None else None, began, before is not None and before.name in FILLS,
        tuple(f.place for f in op.frames if not f.library),
    )  # fmt: skip


def _infinity(op: Op) -> tuple[Op | None, str]:
    """The operation that made the infinity which this one turned into NaN, and how."""
    value = next((v for v in op.inputs if _badness(v)), None)
    while value is not None and value.op is not None:
        inner = [v for v in value.op.inputs if _badness(v)]
        if not inner:
            return value.op, f"{value.op.name} made {_what(value)} of {ranges(value.op)}"
        value = max(inner, key=lambda v: (v.trained, v.sources != 0))
    return None, ""


def _badness(value: Value) -> int:
    """2 for NaN, 1 for infinities, 0 for finite numbers."""
    held = value.tensor
    if not held.is_floating_point() or not held.numel():
        return 0
    return 2 if bool(torch.isnan(held).any()) else int(bool(torch.isinf(held).any()))


def _what(value: Value) -> str:
    held = value.tensor
    nan, inf = int(torch.isnan(held).sum()), int(torch.isinf(held).sum())
    word = f"{nan} NaN" if nan else f"{inf} infinities"
    return f"{word} among {held.numel()} numbers"


def ranges(op: Op) -> str:
    """The operands of an operation as ranges: `a [6, 12] from 0 to 3.2 and -inf`."""
    told: list[str] = []
    for value in op.inputs:
        held = value.tensor.detach()
        if not held.numel() or held.is_complex():
            continue
        finite = held[torch.isfinite(held)] if held.is_floating_point() else held
        span = (
            f"{float(finite.min()):.3g} to {float(finite.max()):.3g}" if finite.numel() else "nothing finite"
        )
        if held.is_floating_point() and bool(torch.isinf(held).any()):
            span += " and infinities"
        told.append(f"{list(held.shape)} ({span})")
    told.extend(f"{number:g}" for number in op.numbers())
    return ", ".join(told) if told else "nothing"


def backward_origin(record: Recording, grads: dict[Value, Tensor], before_loss: int) -> Bad | None:
    """The operation whose result's gradient is finite and whose operand's is not."""
    for value in reversed(record.values):
        grad = grads.get(value)
        leaf = value.op is None and value.tensor.requires_grad
        if (grad is None and not leaf) or (grad is not None and bool(torch.isfinite(grad).all())):
            continue
        for op in reversed(value.users):
            onto = [(out, grads[out]) for out in op.outputs if out in grads]
            if onto and all(bool(torch.isfinite(g).all()) for _, g in onto) and _makes_bad(op, onto):
                return Bad(
                    "backward", op.name, op.place, op.module,
                    f"the gradient of {op.name} is not finite at {ranges(op)}, though the one it is "
                    "handed is",
                    callers=tuple(f.place for f in op.frames if not f.library),
                )  # fmt: skip
    return None


def _makes_bad(op: Op, onto: list[tuple[Value, Tensor]]) -> bool:
    """Does this operation alone turn the finite gradient of its result into NaN or infinity?"""
    swapped: dict[Value, Tensor] = {}

    def own(tree: object) -> object:
        if isinstance(tree, Value):
            if tree not in swapped:
                held = tree.tensor.detach().clone()
                swapped[tree] = held.requires_grad_() if held.is_floating_point() else held
            return swapped[tree]
        if isinstance(tree, (tuple, list)):
            return type(tree)(own(each) for each in tree)  # pyright: ignore
        return tree

    try:
        with torch.enable_grad():
            out = op.func(*[own(each) for each in op.args], **{k: own(each) for k, each in op.kwargs.items()})
            first = cast("list[Tensor]", out)[0] if isinstance(out, (tuple, list)) else cast("Tensor", out)
            inputs = [t for t in swapped.values() if t.requires_grad]
            back = torch.autograd.grad(first, inputs, onto[0][1], allow_unused=True)
    except (RuntimeError, NotImplementedError, IndexError):
        return False
    return any(_state(g) == "bad" for g in cast("tuple[Tensor | None, ...]", back))
