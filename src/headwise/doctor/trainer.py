"""The user's loss: recorded, differentiated, and lowered by some steps of a copy on the one batch."""

from __future__ import annotations

import contextlib
import copy
import gc
import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import logits_of, twin
from headwise.doctor.batch import Batch
from headwise.doctor.check import NotApplicable
from headwise.doctor.runner import Runner, size_of
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


class Trainer(Runner):
    """What needs the user's loss, or a copy to train. See Probe."""

    def loss(self, output: Any, targets: Any = None) -> Tensor:
        """The user's loss of an output against the user's targets (or others)."""
        assert self.subject.loss is not None
        goal = self._targets() if targets is None else targets
        scores = logits_of(output)
        if isinstance(goal, Tensor) and scores is not None:
            wide = goal.is_floating_point() and scores.is_floating_point()
            goal = goal.to(scores.device, scores.dtype if wide else goal.dtype)
        value = self.subject.loss(output, goal)
        return value.mean() if isinstance(value, Tensor) and value.dim() else value

    def _targets(self) -> Any:
        """The user's targets, for a loss that may write to them (labels set to -100 in place)."""
        return copy.deepcopy(self.subject.targets)

    def gradients(self) -> Gradients:
        """The user's loss on the user's batch, backwards, in train mode. Needs "loss"."""
        if self._gradients is None:
            self._gradients = self._backward()
        return self._gradients

    _gradients: Gradients | None = None

    def _backward(self) -> Gradients:
        model = self.model
        model.train()
        moving = [(b, b.detach().clone()) for b in model.buffers()]  # running statistics change in train mode
        for p in model.parameters():
            p.grad = None
        seed_everything()
        with torch.enable_grad(), default_dtype(self.dtype):
            output = self.adapted.call(model, self._leaves(Batch.given(self.adapted)))
            logits = self._logits(output)
            if logits.requires_grad:
                logits.retain_grad()
            loss = self.loss(output)
            if loss.requires_grad:
                torch.autograd.backward(loss)
        grads = {name: p.grad for name, p in model.named_parameters()}
        if self.is_large:  # no room to keep them: their norms tell as much
            grads = {
                n: None if g is None else torch.tensor(size_of(g, 2), dtype=g.dtype) for n, g in grads.items()
            }
        by_logit = logits.grad if logits.requires_grad else None
        result = Gradients(float(loss.detach()), logits.detach(), by_logit, grads)
        for p in model.parameters():
            p.grad = None
        with torch.no_grad():
            for buffer, was in moving:
                buffer.copy_(was)
        model.eval()
        return result

    def recorded_loss(self) -> tuple[Recording, Value, Value | None]:
        """The pass and its loss recorded: (recording, loss, logits), on the user's batch in eval mode."""
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
                recording(model, leaves, also=also) as log,
            ):
                output = self.adapted.call(model, leaves)
                logits = self._logits(output)
                log.settle(logits)
                loss = self.loss(output, targets)
            value = log.value_of(loss) if isinstance(loss, Tensor) else None  # pyright: ignore
            if value is None:
                raise NotApplicable("the loss is no tensor computed from the output")
            self._recorded_loss = (log, value, log.value_of(logits))
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


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):  # pyright: ignore[reportPrivateUsage]
            module.p = 0.0
        elif isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
