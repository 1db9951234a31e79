"""Training from the first line of text to the final weights, in steps that can be taken up again."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headwise.checkpoint.build import Trainable
from headwise.checkpoint.run import RunFiles, open_run, save_model
from headwise.checkpoint.weights import check_fit, fill_model, load_tensors, model_tensors, save_tensors
from headwise.config import RunConfig
from headwise.errors import Stopped, TrainingError
from headwise.train.average import average_into
from headwise.train.interrupt import Interrupt, noted_interrupt
from headwise.train.metrics import Metrics
from headwise.train.optim import make_optimizer, set_learning_rate
from headwise.train.progress import View
from headwise.train.schedule import learning_rate
from headwise.train.state import Progress, load_state, save_state
from headwise.train.task import Shown, Task, Validation
from headwise.train.tasks import make_task
from headwise.train.watching import Watching

# a checkpoint, or what a killed process left of one; a copy by the user has another name
_OURS = re.compile(r"step-\d{8,}\.safetensors|\.step-\d{8,}\.safetensors\.writing")


@dataclass(frozen=True)
class TrainResult:
    """What came of a run: validation of the final weights; loss in nats a target."""

    files: RunFiles
    step: int
    validation: Validation


@dataclass(frozen=True)
class Ready:
    """A run before its first step: what `before` of `train` may look at, and must leave as it is."""

    model: Trainable
    optimizer: torch.optim.Optimizer
    shown: Shown
    view: View


ROWS_SHOWN = 6  # of the first batch, to `before`


def train(
    config: RunConfig, view: View | None = None, before: Callable[[Ready], None] | None = None
) -> TrainResult:
    """Train as the configuration says, or go on where the run in its directory was interrupted.

    before: called once, before the first step that this call takes; what it raises ends the call.

    Errors: RunError (the directory), DataError (the data), StorageError (the disk), TrainingError
    (a loss that is not finite), Stopped (Ctrl-C; everything is saved).
    Law: stopped at any moment, even by SIGKILL, and called again, the run ends with the same bits
    as if it had never stopped (same machine, same number of threads; with train.compile, torch's
    generated code may depend on the first batch it sees, and then the last bits do).
    """
    view = view or View()
    if config.train.threads is not None:
        torch.set_num_threads(config.train.threads)
    with open_run(config) as files:
        task = make_task(config, files, view.warn)
        trainer = _Trainer(config, files, task, view)
        try:
            if before is not None and not trainer.is_done:
                before(trainer.ready())
            with noted_interrupt() as interrupt:
                return trainer.run(interrupt)
        finally:
            trainer.metrics.close()


class _Trainer:
    def __init__(self, config: RunConfig, files: RunFiles, task: Task, view: View) -> None:
        self.config, self.files, self.task, self.view = config, files, task, view
        self.fingerprint = task.fingerprint()
        torch.manual_seed(config.train.seed)  # pyright: ignore[reportUnknownMemberType]
        self.model = task.make_model()
        plain = task.forward
        if config.train.compile:
            task.forward = torch.compile(plain, dynamic=True)  # pyright: ignore[reportUnknownMemberType]
        self.optimizer = make_optimizer(self.model, config.train)
        self.progress = Progress()
        if files.training.exists():
            self.progress = load_state(files.training, self.model, self.optimizer, self.fingerprint)
            self._check_weights()
            what = "already trained: step" if self.is_done else "going on after step"
            view.line(f"{what} {self.progress.step} of {files.folder}")
        self._drop_checkpoints()
        self.metrics = Metrics(files.metrics, self.progress.metrics_bytes, self.progress.step)
        self.watching: Watching | None = None
        if config.train.watch_every and not self.is_done:
            self.watching = Watching(
                files, self.model, self.optimizer, config.train.watch_every, self.progress.step, self.metrics,
                view.warn,
            )  # fmt: skip
            task.forward = self.watching.around(task.forward, plain)

    @property
    def is_done(self) -> bool:
        return self.progress.has_stopped or self.progress.step == self.config.train.max_steps

    def ready(self) -> Ready:
        """What the first step will meet: a few rows of the first batch, without taking it."""
        rows = self.task.epoch(self.progress.epoch)[0]
        return Ready(self.model, self.optimizer, self.task.shown(rows[:ROWS_SHOWN]), self.view)

    def run(self, interrupt: Interrupt) -> TrainResult:
        config, progress = self.config.train, self.progress
        parameters = sum(p.numel() for p in self.model.parameters())
        self.view.line(f"{parameters:,} parameters, {self.task.summary()}")
        upcoming = self._upcoming()
        began, began_tokens = time.monotonic(), progress.total_tokens
        with self.view.bar(config.max_steps, progress.step, self.task.unit), self.watching or nullcontext():
            while progress.step < config.max_steps and not progress.has_stopped:
                self._stop_where(interrupt)
                loss, norm, rate = self._step([next(upcoming) for _ in range(config.accumulate)])
                seconds = time.monotonic() - began
                speed = (progress.total_tokens - began_tokens) / seconds
                self.view.advance(progress.step, loss, rate, speed)
                if progress.step % config.log_every == 0:
                    self._log(rate, norm, speed, seconds)
                if progress.step % config.validate_every == 0 or progress.step == config.max_steps:
                    self._validate()
                    self._save()
                elif config.save_every and progress.step % config.save_every == 0:
                    self._save()
        self._stop_where(interrupt)
        return self._finish()

    def _stop_where(self, interrupt: Interrupt) -> None:
        if interrupt.is_set:
            self._save()
            raise Stopped(
                f"stopped after step {self.progress.step}, everything is saved in {self.files.folder}; "
                "the same command goes on from there"
            )

    def _step(self, batches: list[Any]) -> tuple[float, float, float]:
        """One optimizer step: the loss in nats a target, the gradient's length before clipping, the rate."""
        config, progress, task = self.config.train, self.progress, self.task
        self.model.train()
        tokens = sum(task.targets(batch) for batch in batches)
        total = 0.0
        for batch in batches:
            with self._precision():
                loss = task.loss(batch, tokens)
            total += loss.item() * tokens
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_norm or math.inf).item()
        progress.step += 1
        if not (math.isfinite(total) and math.isfinite(norm)):
            if self.watching is not None:
                self.watching.explain()
            raise self._not_finite(
                f"a finite loss and gradient, got loss {total / tokens:g} and gradient norm {norm:g}"
            )
        if self.watching is not None:
            self.watching.log(loss=total / tokens)
        rate = learning_rate(progress.step, config, self.config.model.d_model)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        self.optimizer.zero_grad(set_to_none=True)
        progress.loss_sum += total
        progress.tokens += tokens
        progress.total_tokens += tokens
        return total / tokens, norm, rate

    def _log(self, rate: float, norm: float, speed: float, seconds: float) -> None:
        progress = self.progress
        loss = progress.loss_sum / progress.tokens
        progress.loss_sum, progress.tokens = 0.0, 0
        self.metrics.write(
            progress.step,
            epoch=progress.epoch,
            loss=loss,
            learning_rate=rate,
            gradient_norm=norm,
            tokens=progress.total_tokens,
            tokens_per_second=round(speed, 1),
            seconds=round(seconds, 2),
        )
        self.view.logged(progress.step, loss, rate, speed)

    def _validate(self) -> None:
        config, progress = self.config.train, self.progress
        self._refuse_broken_weights()
        result = self._measure()
        if not math.isfinite(result.loss):
            raise self._not_finite(f"a finite validation loss, got {result.loss:g}")
        self.metrics.write(progress.step, **result.metrics("validation"))
        self.view.line(f"step {progress.step}  {result.summary()}")
        for sample in result.samples:
            self.view.line(f"    {sample}")
        if config.average_last > 1:
            about = {"kind": "checkpoint", "step": progress.step}
            save_tensors(self.files.checkpoint(progress.step), model_tensors(self.model), about)
            progress.validated = [*progress.validated, progress.step][-config.average_last :]
        value = result.watched(config.watch)
        if progress.best is None or value < progress.best:
            progress.best, progress.best_step, progress.waited = value, progress.step, 0
            save_model(self.files, self.model, progress.step)
        else:
            progress.waited += 1
            if config.patience and progress.waited >= config.patience:
                progress.has_stopped = True
                self.view.line(f"no better {config.watch} for {config.patience} validations: stopping early")

    def _measure(self) -> Validation:
        with self._precision():
            return self.task.validate()

    def _not_finite(self, what: str) -> TrainingError:
        kept = "its last good state is kept" if self.files.training.exists() else "nothing was saved yet"
        return TrainingError(
            f"step {self.progress.step}: expected {what}; {kept} in {self.files.folder}; lower "
            "train.learning_rate or lengthen train.warmup_steps in a new --run"
        )

    def _refuse_broken_weights(self) -> None:
        """A finite gradient can still break them, by too high a rate: that must not reach any file."""
        if not all(p.isfinite().all() for p in self.model.parameters()):
            raise self._not_finite("finite weights after the update")

    def _save(self) -> None:
        self._refuse_broken_weights()
        self.metrics.sync()
        self.progress.metrics_bytes = self.metrics.bytes
        save_state(self.files.training, self.model, self.optimizer, self.progress, self.fingerprint)
        if self.watching is not None:
            self.watching.save()
        self._drop_checkpoints()  # only after the state that no longer names them is safe

    def _drop_checkpoints(self) -> None:
        """Remove those that the state does not name; at the start too: a kill may have come in between."""
        kept = {self.files.checkpoint(step) for step in self.progress.validated}
        for path in self.files.checkpoints.glob("*step-*.safetensors*"):
            if path not in kept and _OURS.fullmatch(path.name):
                path.unlink(missing_ok=True)

    def _check_weights(self) -> None:
        """Read the files that the end of the run will need, rather than fail there."""
        needed = [self.files.checkpoint(step) for step in self.progress.validated]
        if self.progress.best is not None:
            needed.append(self.files.model)
        for path in needed:
            check_fit(load_tensors(path)[0], model_tensors(self.model), path)

    def _finish(self) -> TrainResult:
        """Choose the final weights: the mean of the last checkpoints, or the best of all."""
        progress = self.progress
        if self.config.train.average_last > 1:
            average_into(self.model, [self.files.checkpoint(step) for step in progress.validated])
            save_model(self.files, self.model, progress.step)
            what = f"mean of the checkpoints after steps {', '.join(map(str, progress.validated))}"
        else:
            fill_model(self.model, load_tensors(self.files.model)[0], self.files.model)
            what = f"best weights, of step {progress.best_step}"
        result = self._measure()
        self.metrics.write(progress.step, **result.metrics("final"))
        self.metrics.sync()
        self.view.line(f"final  {result.summary()}  ({what}), in {self.files.model}")
        return TrainResult(self.files, progress.step, result)

    def _upcoming(self) -> Iterator[Any]:
        """Batches from where the run stands, for ever; progress points at the one after."""
        progress = self.progress
        while True:
            rows = self.task.epoch(progress.epoch)
            while progress.batch < len(rows):
                progress.batch += 1
                yield self.task.batch(rows[progress.batch - 1])
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _precision(self) -> torch.autocast | nullcontext[None]:
        is_half = self.config.train.precision == "bfloat16"
        return torch.autocast("cpu", torch.bfloat16) if is_half else nullcontext()
