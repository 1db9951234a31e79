"""The user's loss: recorded, differentiated, and lowered by some steps of a copy on the one batch."""

from __future__ import annotations

import contextlib
import copy
import gc
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]
from torch.utils._pytree import tree_map

from headwise.doctor.adapt import logits_of, twin
from headwise.doctor.batch import Batch
from headwise.doctor.check import NotApplicable
from headwise.doctor.outputs import keep_slope, on_the_way, slope
from headwise.doctor.runner import Run, Runner, size_of
from headwise.doctor.trace import Recording, Value, recording
from headwise.doctor.untouched import default_dtype, seed_everything


@dataclass(eq=False)
class Gradients:
    """One pass with the user's loss, backwards: loss, d loss / d logits, and each parameter's gradient.

    Of a large model, the norm of each parameter's gradient.
    """

    loss: float
    logits: Tensor
    by_logit: Tensor | None
    by_parameter: dict[str, Tensor | None]


@dataclass(frozen=True, eq=False)
class Stop:
    """The exception at which a training step of the user's stops, and what reached the loss.

    phase: the loss itself, the backward pass, or the optimizer's step.
    """

    phase: Literal["loss", "backward", "step"]
    error: Exception
    output: Any
    targets: Any


class Trainer(Runner):
    """What needs the user's loss, or a copy to train. See Probe.

    given: the run of the user's own batch.
    """

    given: Run

    def loss(self, output: Any, targets: Any = None) -> Tensor:
        """The user's loss of an output against the user's targets (or others)."""
        assert self.subject.loss is not None
        goal = self._targets() if targets is None else targets
        if self._loss_wants_own_type:
            output = _narrowed(output, self.own_dtype)
        value = self.subject.loss(output, _beside(goal, output))
        return value.mean() if isinstance(value, Tensor) and value.dim() else value

    def loss_with(self, scores: Tensor) -> Tensor:
        """The user's loss if the model's output on the user's batch had these scores."""
        known = logits_of(self.given.output)

        def changed(held: Tensor) -> Tensor:  # a loss may write to them
            return scores.clone() if held is known else held.clone()

        return self.loss(_each_tensor(self.given.output, changed))

    def loss_range(self) -> tuple[float, float]:
        """The user's loss of scores that are all zero, and the lowest that free scores come to.

        With smoothed labels the lowest is far above 0. No weights take part: the scores are learnt.
        """
        given = logits_of(self.given.output)
        if given is None or not given.is_floating_point():
            raise NotApplicable("the output has no scores")
        scores = torch.zeros_like(given).requires_grad_()
        optimizer, losses = torch.optim.Adam([scores], lr=0.2), list[float]()
        with torch.enable_grad():
            for _ in range(100):
                loss = self.loss_with(scores)
                losses.append(float(loss.detach()))
                if not math.isfinite(losses[-1]) or not loss.requires_grad:
                    break
                (scores.grad,) = torch.autograd.grad(loss, scores)
                optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        return losses[0], min(losses)

    @cached_property
    def stop(self) -> Stop | None:
        """Where the first step of the user's training stops with an exception; None where it does not.

        A copy in its own precision takes it, in train mode. A large model is asked for its loss alone.
        """
        if self.subject.loss is None or self.subject.targets is None:
            return None
        targets, given = self._targets(), Batch.given(self.adapted)
        if self.is_large:
            error = self._raised(self.given.output, targets)
            return Stop("loss", error, self.given.output, targets) if error is not None else None
        with self.training_copy() as (model, optimizer), torch.enable_grad():
            try:
                leaves = [leaf.to(self.device or leaf.device, copy=True) for leaf in given.leaves]
                output = self.adapted.call(model, tuple(leaves))
            except Exception:
                return None  # that training mode alone fails, and how, training_pass tells
            phase: Literal["loss", "backward", "step"] = "loss"
            try:
                loss = self.subject.loss(output, _beside(targets, output) if self.device else targets)
                phase = "backward"
                if isinstance(loss, Tensor) and loss.requires_grad:  # pyright: ignore[reportUnnecessaryIsInstance]
                    torch.autograd.backward(loss.sum())
                phase = "step"
                if optimizer is not None and any(
                    p.grad is not None and p.grad.is_sparse for p in model.parameters()
                ):
                    optimizer.step()  # not all optimizers take sparse gradients
            except Exception as error:
                return Stop(phase, error, output, targets)
        return None

    def _refuse_stops(self, *phases: str) -> None:
        """Raise NotApplicable where training is known to stop so early."""
        if self.stop is not None and self.stop.phase in phases:
            words = {"loss": "the loss", "backward": "the backward pass", "step": "the optimizer's step"}
            raise NotApplicable(f"{words[self.stop.phase]} stops with an exception (see training-stops)")

    def _raised(self, output: Any, targets: Any) -> Exception | None:
        assert self.subject.loss is not None
        try:
            self.subject.loss(
                _each_tensor(output, Tensor.clone), _beside(targets, output)
            )  # it may write to them
        except Exception as error:
            return error
        return None

    @cached_property
    def _loss_wants_own_type(self) -> bool:
        """Does the loss refuse scores in double precision, as one with weights of classes in float32 does?"""
        if self.dtype == self.own_dtype:
            return False
        wide, narrow = self.given.output, _narrowed(self.given.output, self.own_dtype)
        with _disable_current_modes(), torch.no_grad():  # it may be asked while something is recorded
            refused = isinstance(self._raised(wide, self._targets()), RuntimeError)
            return refused and self._raised(narrow, self._targets()) is None

    def _targets(self) -> Any:
        """The user's targets, for a loss that may write to them (labels set to -100 in place)."""
        return copy.deepcopy(self.subject.targets)

    def gradients(self) -> Gradients:
        """The user's loss on the user's batch, backwards, in train mode. Needs "loss"."""
        self._refuse_stops("loss", "backward")
        if self._gradients is None:
            self._gradients = self._backward()
        return self._gradients

    _gradients: Gradients | None = None

    def _backward(self) -> Gradients:
        model = self.model
        model.train()
        for p in model.parameters():
            p.grad = None
        seed_everything()
        with torch.enable_grad(), default_dtype(self.dtype), self.state.kept():
            output = self.adapted.call(model, self._leaves(Batch.given(self.adapted)))
            logits = self._logits(output)
            keep_slope(logits)
            loss = self.loss(output)
            if loss.requires_grad:
                torch.autograd.backward(loss)
        grads = {name: dense(p.grad) for name, p in model.named_parameters()}
        if self.is_large:  # no room to keep them: their norms tell as much
            grads = {
                n: None if g is None else torch.tensor(size_of(g, 2), dtype=g.dtype) for n, g in grads.items()
            }
        by_logit, given = slope(logits), Batch.given(self.adapted)
        by_logit = None if by_logit is None else self.in_rows(by_logit, given)
        result = Gradients(float(loss.detach()), self.in_rows(logits.detach(), given), by_logit, grads)
        for p in model.parameters():
            p.grad = None
        model.eval()
        return result

    def recorded_loss(self) -> tuple[Recording, Value, Value | None]:
        """The pass and its loss recorded: (recording, loss, logits), on the user's batch in eval mode.

        The logits are as the loss reads them: flattened, where the model flattens them.
        """
        if self._recorded_loss is None:
            model = self.model
            model.eval()
            seed_everything()
            leaves = self._leaves(Batch.given(self.adapted))
            targets = self._targets()
            also = {"targets": targets} if isinstance(targets, Tensor) else {}
            with (
                torch.no_grad(),
                default_dtype(self.dtype),
                self.state.kept(),
                recording(model, leaves, also=also) as log,
            ):
                output = self.adapted.call(model, leaves)
                logits = self._logits(output)
                log.settle(logits)
                loss = self.loss(output, targets)
            value = log.value_of(loss) if isinstance(loss, Tensor) else None  # pyright: ignore
            if value is None:
                raise NotApplicable("the loss is no tensor computed from the output")
            self._recorded_loss = (log, value, on_the_way(log, log.value_of(logits), value))
        return self._recorded_loss

    _recorded_loss: tuple[Recording, Value, Value | None] | None = None

    def tidy(self) -> None:
        """Free what a large model's copies leave in reference cycles (an optimizer that was watched)."""
        if self.is_large:
            self.release()
            gc.collect()

    @contextlib.contextmanager
    def training_copy(self) -> Generator[tuple[nn.Module, Any]]:
        """A copy of model and optimizer in their own dtype, to train and throw away."""
        self.tidy()
        model, optimizer = twin(self.user_model, self.subject.optimizer)
        if self.device:
            model.to(self.device)
        seed_everything()
        yield model.train(), optimizer

    def rehearse(
        self,
        steps: int,
        *,
        optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None,
        watch: Callable[[nn.Module, Any], None] | None = None,
        quiet: bool = False,
    ) -> list[float]:
        """Train a copy on the user's one batch; the loss before each step, and after the last.

        optimizer: another one than the user's. watch(model, optimizer) is called once before the first step.
        quiet: without dropout.
        """
        losses: list[float] = []
        given = Batch.given(self.adapted)
        self._refuse_stops("loss", "backward", *(["step"] if optimizer is None else []))

        def leaves() -> tuple[Tensor, ...]:  # a model may write to its inputs
            return tuple(leaf.to(self.device or leaf.device, copy=True) for leaf in given.leaves)

        with self.training_copy() as (model, own):
            chosen = optimizer(model) if optimizer is not None else own
            if chosen is None:
                raise NotApplicable("no optimizer was given")
            if watch is not None:
                watch(model, chosen)
            if quiet:
                _without_dropout(model)
            with torch.enable_grad():
                for _ in range(steps):
                    for p in model.parameters():  # not zero_grad: a wrapper around an optimizer may have none
                        p.grad = None
                    loss = self.loss(self.adapted.call(model, leaves()))
                    losses.append(float(loss.detach()))
                    if not math.isfinite(losses[-1]) or not loss.requires_grad:
                        return losses
                    torch.autograd.backward(loss)
                    chosen.step()
            with torch.no_grad():
                losses.append(float(self.loss(self.adapted.call(model, leaves()))))
        return losses


def dense(grad: Tensor | None) -> Tensor | None:
    """A gradient with a number for every weight: that of nn.Embedding(sparse=True) holds the rows in use."""
    return grad.to_dense() if grad is not None and grad.is_sparse else grad


def _beside(targets: Any, output: Any) -> Any:
    """The targets on the device of the scores, and in their precision where they are no labels."""
    scores = logits_of(output)
    if not isinstance(targets, Tensor) or scores is None:
        return targets
    wide = targets.is_floating_point() and scores.is_floating_point()
    return targets.to(scores.device, scores.dtype if wide else targets.dtype)


def _narrowed(output: Any, dtype: torch.dtype) -> Any:
    """The same output with its floating-point tensors in this type."""

    return _each_tensor(output, lambda held: held.to(dtype) if held.is_floating_point() else held)


def _each_tensor(output: Any, to: Callable[[Tensor], Tensor]) -> Any:
    def one(held: Any) -> Any:
        return to(held) if isinstance(held, Tensor) else held

    return tree_map(one, output)


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):  # pyright: ignore[reportPrivateUsage]
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
        elif not [*module.children(), *module.parameters(), *module.buffers()]:
            module.eval()  # a dropout written by hand holds nothing that training needs
