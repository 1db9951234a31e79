"""Run the model and record it: what came out, and how two runs differ.

What runs is a copy in float64 where the model allows it; a large model runs itself, in its own dtype (see
`Runner.model`). Without gradients, from the same random numbers, in eval mode unless training is asked for.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import Adapted, logits_of, twin
from headwise.doctor.batch import Batch
from headwise.doctor.check import NotApplicable
from headwise.doctor.outputs import Order, unflattened
from headwise.doctor.state import State
from headwise.doctor.trace import Recording, Value, recording
from headwise.doctor.untouched import default_dtype, seed_everything

LARGE = 20_000_000  # parameters from which copies are not kept side by side
FILL = 1e8  # what is larger was put there by a mask
ROUNDINGS = 64  # differences below so many units of the last place are rounding


@dataclass(eq=False)
class Run:
    """One recorded pass: what came out, and the recording."""

    batch: Batch
    record: Recording
    output: Any
    logits: Tensor

    @property
    def logits_value(self) -> Value:
        found = self.record.value_of(self.logits)
        assert found is not None, "the logits are not in the recording"
        return found


class Moved:
    """Two runs compared: which elements of which value differ, beyond rounding."""

    def __init__(self, before: Run, after: Run, eps: float) -> None:
        self.before, self.after, self._eps = before, after, eps
        mine, other = before.record.ops, after.record.ops
        self.aligned = len(before.record.values)
        for a, b in zip(mine, other, strict=False):
            if a.name != b.name or [o.shape for o in a.outputs] != [o.shape for o in b.outputs]:
                self.aligned = min((o.index for o in a.outputs), default=self.aligned)
                break

    def __call__(self, value: Value) -> Tensor:
        """True where the value differs (shaped as the value)."""
        if value.index >= self.aligned or value.index >= len(self.after.record.values):
            return torch.zeros_like(value.tensor, dtype=torch.bool)
        return differs(value.tensor, self.after.record.values[value.index].tensor, self._eps)

    def by(self, value: Value) -> float:
        """The largest difference of a value, 0 where it does not move."""
        values = self.after.record.values
        if value.index >= min(self.aligned, len(values)) or not value.tensor.is_floating_point():
            return 0.0
        return largest(value.tensor - values[value.index].tensor)

    @property
    def logits(self) -> Tensor:
        return differs(self.before.logits, self.after.logits, self._eps)

    @property
    def logits_by(self) -> Tensor:
        return gap(self.before.logits, self.after.logits)


def differs(a: Tensor, b: Tensor, eps: float) -> Tensor:
    """Where two tensors differ by more than rounding; the same infinity or NaN twice is no difference."""
    if a.shape != b.shape:
        return torch.ones_like(a, dtype=torch.bool)
    if not a.is_floating_point():
        return a != b
    a, b = a.detach(), b.detach()
    size, other = size_of(a), size_of(b)
    if FILL < size < math.inf and math.isfinite(other):  # what fills a mask says nothing of rounding
        held = a.abs()
        ordinary = held[held <= FILL]
        size = float(ordinary.max()) if ordinary.numel() else size
        return (a - b).abs_() > ROUNDINGS * eps * held.clamp(min=size)
    if math.isfinite(size) and math.isfinite(other):  # the usual case, in few passes
        return (a - b).abs_() > ROUNDINGS * eps * max(size, 1e-30)
    same = (a == b) | (torch.isnan(a) & torch.isnan(b))
    near = (a - b).abs() <= ROUNDINGS * eps * max(largest(a), 1e-30)
    return ~(same | near)


def gap(a: Tensor, b: Tensor) -> Tensor:
    """|a - b|; 0 where both hold the same infinity, whose difference with itself is no number."""
    return (a - b).abs().masked_fill(a == b, 0)


def ordinary(tensor: Tensor) -> Tensor:
    """True where an element says something: a finite number, and none that a mask was filled with."""
    return torch.isfinite(tensor) & (tensor.abs() <= FILL)


def is_finite(logits: Tensor) -> bool:
    """Is every score a number? An id that is forbidden everywhere, a whole column of -inf, counts as one."""
    bad = ~torch.isfinite(logits)
    if not bool(bad.any()):
        return True
    if logits.dim() < 2:
        return False
    forbidden = torch.isneginf(logits).flatten(0, -2).all(0)  # of each token
    return not bool(forbidden.all()) and not bool(bad[..., ~forbidden].any())


def size_of(tensor: Tensor, order: float = math.inf) -> float:
    """The norm of all elements, the largest size where no order is given; not finite where any is not."""
    norm = cast("Callable[..., Tensor]", torch.linalg.vector_norm)  # pyright: ignore[reportUnknownMemberType]
    return float(norm(tensor.detach(), ord=order)) if tensor.numel() else 0.0


def largest(tensor: Tensor) -> float:
    """The largest size of a finite element, 0 where there is none."""
    finite = tensor.detach()[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def is_large(model: nn.Module) -> bool:
    """Is the model too large for copies side by side?"""
    return sum(p.numel() for p in model.parameters()) > LARGE


def _described(output: Any) -> str:
    """What a model gave back, in plain words."""
    if output is None:
        return "which is None: forward returns nothing"
    if inspect.isgenerator(output):
        return "a generator: forward holds a yield, so nothing has been computed yet"
    if inspect.iscoroutine(output):
        return "a coroutine: forward is an async function"
    keys = ", ".join(map(repr, cast("dict[Any, Any]", output))) if isinstance(output, dict) else ""
    return f"a {type(cast('object', output)).__name__}" + (f" with the keys {keys}" if keys else "")


def run_as_it_is(adapted: Adapted, device: str | None) -> Run:
    """One recorded pass on the subject's own batch in its own precision, before anything is known of it."""
    runner = Runner(adapted, device)
    runner.dtype = runner.own_dtype
    return runner.run(Batch.given(adapted))


class Runner:
    """What runs for a subject, and how. `failure` is what its own batch raised, if it did."""

    def __init__(self, adapted: Adapted, device: str | None = None) -> None:
        self.adapted = adapted
        self.subject = adapted.subject
        self.device = device
        self.user_model = adapted.model
        self.failure: BaseException | None = None
        self.failed_record: Recording | None = None
        self.order: Order | None = None  # in which the logits were flattened, where they were
        self.dtype = self.own_dtype if self.is_large else torch.float64
        self._copy: nn.Module | None = None
        self._state: State | None = None

    @cached_property
    def is_large(self) -> bool:
        """A large model is run itself, in its own dtype: there is no room for copies in float64."""
        return is_large(self.user_model)

    @property
    def own_dtype(self) -> torch.dtype:
        own = (p.dtype for p in self.user_model.parameters() if p.is_floating_point())
        return next(own, torch.float32)

    @property
    def model(self) -> nn.Module:
        """The copy that is run: float64 where the model allows it; a large model itself (see `untouched`)."""
        if self.is_large and self.dtype == self.own_dtype and not self.device:
            return self.user_model
        if self._copy is None:
            self._copy, _ = twin(self.user_model, None)
            self._copy._apply(self._cast)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
            if self.device:
                self._copy.to(self.device)
        return self._copy

    def _cast(self, tensor: Tensor) -> Tensor:
        # not Module.to: tables of complex rotations stay as they are
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    @property
    def state(self) -> State:
        """What the model that is run keeps between its calls."""
        model = self.model
        if self._state is None or self._state.model is not model:
            self._state = State(model)
        return self._state

    def release(self) -> None:
        """Let the copy go (a large model is not kept twice); the next run makes it again."""
        self._copy = self._state = None

    def run(self, batch: Batch, *, train: bool = False, record: bool = True, seed: int = 0) -> Run:
        """One pass without gradients, from random numbers of this seed; recorded unless `record` is False."""
        model = self.model
        model.train(train)
        leaves = self._leaves(batch)
        seed_everything(seed)
        dtype = self.dtype if self.dtype.is_floating_point else torch.float32
        with torch.no_grad(), default_dtype(dtype), self.state.kept():
            if not record:
                output = self.adapted.call(model, leaves)
                return Run(batch, Recording(), output, self.in_rows(self._logits(output), batch))
            with recording(model, leaves) as log:
                try:
                    output = self.adapted.call(model, leaves)
                except Exception:
                    self.failed_record = log
                    raise
                logits = self.settled(log, output, batch)
        return Run(batch, log, output, logits)

    def settled(self, log: Recording, output: Any, batch: Batch) -> Tensor:
        """While recording: the logits of an output, with an axis for positions, as a value of the record."""
        logits = self._logits(output)
        log.settle(logits)
        known = len(log.ops)
        logits = self.in_rows(logits, batch)
        for op in log.ops[known:]:
            op.frames = ()  # this view is ours, and no line of the user's
        return logits

    def in_rows(self, scores: Tensor, batch: Batch) -> Tensor:
        """Flattened logits [B * T, V] as [B, T, V] (or time first, as the inputs are)."""
        main = self.adapted.main
        if main is None or self.order is None:
            return scores
        return unflattened(scores, self.order, batch.rows, batch.length(main), self.adapted.batch_axis)

    def _leaves(self, batch: Batch) -> tuple[Tensor, ...]:
        moved: list[Tensor] = []
        for leaf in batch.leaves:
            wide = leaf.to(self.dtype) if leaf.is_floating_point() and self.dtype.is_floating_point else leaf
            moved.append((wide.to(self.device) if self.device else wide).clone())
        return tuple(moved)

    def _logits(self, output: Any) -> Tensor:
        logits = logits_of(output)
        if logits is None:
            raise NotApplicable(f"no tensor of scores in the output, {_described(output)}")
        return logits
