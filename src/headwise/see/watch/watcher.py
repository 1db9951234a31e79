"""A watch: hears the steps and calls of a training, measures some of them, and holds what came of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from headwise.doctor.adapt import unwrap
from headwise.errors import StorageError
from headwise.files import write_text_atomically
from headwise.see.watch.board import Board
from headwise.see.watch.calls import Call, Calls
from headwise.see.watch.history import write_history
from headwise.see.watch.judge import Judge, Unusual, told_of
from headwise.see.watch.layers import Sizes, layers_of
from headwise.see.watch.measure import Seen
from headwise.see.watch.nonfinite import Guard, NotFinite, origin
from headwise.see.watch.observe import Observer
from headwise.see.watch.sample import LayerSeen, Sample
from headwise.see.watch.steps import Steps, is_skipped, scale_of

MOST_CALLS = 64  # calls of one step that are looked at: a loop over the blocks makes one each
MOST_SILENT = 40  # steps of other optimizers, after which one of them counts in the place of the first
REPORT_EVERY = 60.0  # seconds between reports written while training goes on


class Watch:
    """What `watch` gives: a context manager that holds what was measured and what is unusual in it.

    history: a Sample for each measured step. findings: what is unusual, each told once. notes: what could not
    be seen, and why. not_finite: where numbers stopped being finite, if they did.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any = None,
        every: int = 50,
        *,
        report: str | Path | None = None,
        board: Any = None,
        live: bool | None = None,
        budget: float | None = 0.03,
        say: Callable[[str], None] | None = None,
        step: int = 0,
        history: Sequence[Sample] = (),
    ) -> None:
        self.model = unwrap(model)[0]
        self.every = every
        self.step = step
        self.history: list[Sample] = list(history)
        self.findings: list[Unusual] = []
        self.notes: list[str] = []
        self.not_finite: NotFinite | None = None
        self.seconds = 0.0
        self._report = Path(report) if report is not None else None
        self._budget = budget
        self._say = say or _to_stderr
        self._layers = layers_of(self.model)
        self._sizes = Sizes(self._layers)
        trained = [p for layer in self._layers for _, p in layer.parameters]
        self._guard = Guard(trained)
        self._observer = Observer(self.model, [layer.name for layer in self._layers])
        self._calls = Calls(model, self.model, self._entered)
        self._steps = Steps(self.model.parameters(), optimizer, self._before, self._after)
        self._judge = Judge()
        for sample in self.history:
            self.findings += self._judge.hear(sample)
        self._board = Board(board)
        self._live = live
        self._panel: Any = None
        self._leader: Any = None
        self._silent = 0
        self._held: set[int] = set()
        self._others: set[int] = set()
        self._pending: Sample | None = None
        self._observed: set[int] = set()
        self._costs = [0.0, 0.0]  # of measuring without the first time, which learns; of the last
        self._spent_now = 0.0
        self._learnt = False
        self._started: float | None = None
        self._ended = 0.0
        self._written = 0.0
        self._is_broken = False
        if _is_sharded(self.model):
            self._is_broken = True
            self._note("the weights lie in parts on several devices: only steps are counted")
        if self._calls.has_compiled:
            self._note(
                "the model is compiled: it is looked at through its uncompiled code, where it is called whole"
            )

    # The time it is watched

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(is_failing=error is not None)

    def start(self) -> None:
        """Watch from now on: what entering the context does."""
        if self._started is not None:
            return
        self._started = self._written = time.perf_counter()
        self._steps.start()
        self._calls.start()
        self._prepare()
        if self._live or (self._live is None and sys.stderr is not None and sys.stderr.isatty()):
            from headwise.see.watch.panel import Panel

            self._panel = Panel(self)
            self._panel.start()

    def stop(self, *, is_failing: bool = False) -> None:
        """Watch no longer, take every hook away and write the report; is_failing: an exception is on its way.

        Errors: StorageError for the report, unless another error is on its way.
        """
        if self._started is None:
            return
        self._ended = time.perf_counter() - self._started
        self._started = None
        self._steps.stop()
        self._calls.stop()
        if self._panel is not None:
            self._panel.stop()
            self._panel = None
        self._pending = None
        if not self.history:
            self._note(
                "no step of an optimizer that holds the model's weights was seen; call watch.step_taken() "
                "before each change of the weights"
            )
        try:
            self._board.close()
            if self._report is not None:
                self.save(self._report)
        except StorageError:
            if not is_failing:
                raise

    # What the loop may tell

    def step_taken(self) -> None:
        """For loops without an optimizer of torch's: call it after each backward pass, before the change."""
        self._before(None, None)
        self._after(None)

    def log(self, **values: float | Tensor) -> None:
        """Numbers of the loop to show beside the others, `loss` among them; read only in measured steps."""
        sample = self._pending if self._calls.seen else None  # else the step it is for has not begun
        if sample is None and self.history and self.history[-1].step == self.step:
            sample = self.history[-1]
        if sample is None:
            return
        for name, value in values.items():
            number = float(value.detach()) if isinstance(value, Tensor) else float(value)
            if name == "loss":
                sample.loss = number
            else:
                sample.logged[name] = number

    def called(
        self, run: Callable[..., Any], observed: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """A function to call in place of `run`, for a loop that calls a method of the model, not the model.

        observed: what is looked at in its place, where `run` is compiled.
        """
        return self._calls.around(run, observed or run)

    # What came of it

    @property
    def share(self) -> float:
        """The share of the time from start to stop that watching took, what it learnt at first included."""
        until = self._ended if self._started is None else time.perf_counter() - self._started
        return self.seconds / max(until, 1e-9)

    def summary(self) -> str:
        """What was seen, in plain words: what is unusual first."""
        from headwise.see.watch.words import summary

        return summary(self)

    def save(self, path: str | Path) -> None:
        """Write report.html: every curve, and what is unusual. Errors: StorageError."""
        from headwise.see.watch.page import page

        write_text_atomically(Path(path), page(self))

    def save_history(self, path: str | Path) -> None:
        """Write every sample as a line of JSON. Errors: StorageError."""
        write_history(Path(path), self.history)

    # One step

    def _prepare(self) -> None:
        """Before a step: will it be measured?"""
        self._observed = set()
        coming = self.step + 1
        is_due = not self._learnt or coming % self.every == 0
        if is_due and not self._is_broken and self._fits():
            self._pending = Sample(coming)
            self._spent_now = 0.0
            self._calls.open()
        else:
            self._pending = None

    def _fits(self) -> bool:
        if self._budget is None or self._started is None:
            return True
        total, last = self._costs
        return total + last <= self._budget * (time.perf_counter() - self._started)

    def _entered(self, call: Call) -> None:
        sample = self._pending
        run: Any = call.run
        number = hash((id(getattr(run, "__self__", run)), getattr(run, "__name__", "")))
        if sample is None or number in self._observed or len(self._observed) >= MOST_CALLS:
            return
        self._observed.add(number)
        began = time.perf_counter()
        with self._calls.paused():
            seen = self._observer.look(call.run, call.arguments)
        if seen is not None:
            _add(sample, seen)
        self._spend(began)

    def _before(self, optimizer: Any, loss: Any) -> None:
        if not self._leads(optimizer):
            return
        if self._is_broken:
            return
        began = time.perf_counter()
        try:
            scale = scale_of(optimizer)
            sample = self._pending
            is_finite = self.not_finite is not None or self._guard.is_finite(all_of_them=sample is not None)
            if not is_finite and not is_skipped(optimizer):
                self.look_for_nan()
            if sample is not None:
                self._calls.close()
                self._measure(sample, optimizer, loss, scale)
        except Exception as error:
            self._give_up(error)
        self._spend(began)

    def _after(self, optimizer: Any) -> None:
        if not self._leads(optimizer):
            return
        began = time.perf_counter()
        self.step += 1
        sample, self._pending = self._pending, None
        try:
            if sample is not None:
                self._finish(sample)
            self._calls.settle()
            if self._panel is not None:
                self._panel.step(self.step)
        except Exception as error:
            self._give_up(error)
        self._spend(began)
        if sample is not None:
            if self._learnt:
                self._costs = [self._costs[0] + self._spent_now, self._spent_now]
            self._learnt = True
        self._prepare()

    def _leads(self, optimizer: Any) -> bool:
        """Is it the optimizer whose steps count: the first that was seen, or what has taken its place?"""
        if optimizer is None:
            return True
        self._silent = 0 if optimizer is self._leader else self._silent + 1
        if self._leader is None or self._silent > MOST_SILENT:
            self._leader, self._silent = optimizer, 0
            self._held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if optimizer is not self._leader:
            self._others |= {id(p) for group in optimizer.param_groups for p in group["params"]}
        return optimizer is self._leader

    def _measure(self, sample: Sample, optimizer: Any, loss: Any, scale: float) -> None:
        """After the backward pass, before the weights change."""
        gradients = self._sizes.gradients(scale)
        sample.gradient = sum(g * g for g in gradients.values() if g is not None) ** 0.5
        for name, size in gradients.items():
            sample.layers[name] = LayerSeen(sample.layers.get(name, LayerSeen()).activation, size)
        sample.without = tuple(self._sizes.without())
        if isinstance(loss, Tensor) and loss.numel() == 1:
            sample.loss = float(loss.detach())
        told = next((call.loss for call in self._calls.seen if call.loss is not None), None)
        if sample.loss is None and told is not None:
            sample.loss = float(told)
        if optimizer is not None:
            sample.rate = float(optimizer.param_groups[0].get("lr", 0.0))
            self._sizes.keep(self._held)

    def _finish(self, sample: Sample) -> None:
        """After the weights have changed."""
        if self._leader is not None:
            shares, still, moving = self._sizes.moved(sample.gradient or 0.0)
            for name, share in shares.items():
                known = sample.layers.get(name, LayerSeen())
                sample.layers[name] = LayerSeen(known.activation, known.gradient, share)
            sample.still = tuple(still) if moving else ()
        self.history.append(sample)
        found = self._judge.hear(sample, self._missing(sample))
        self._tell(found)
        if not self._observed:
            self._note(
                "no call of the model was heard (a loop that calls its methods, or is compiled as a whole): "
                "let it call watch.called(function) instead"
            )
        elif not sample.attentions and not self._observer.notes:
            self._note("no attention was recognised in what the loop calls of the model")
        for note in self._observer.notes:
            self._note(note)
        self._board.add(sample)
        if self._panel is not None:
            self._panel.show()
        if self._report is not None and time.perf_counter() - self._written > REPORT_EVERY:
            self._written = time.perf_counter()
            try:
                self.save(self._report)
            except StorageError as error:
                self._note(str(error))

    def _missing(self, sample: Sample) -> list[str]:
        if self._leader is None:
            return []
        held = self._held | self._others
        every = [(name, p) for layer in self._layers for name, p in layer.parameters]
        return [name for name, p in every if id(p) not in held and name not in sample.without]

    def look_for_nan(self) -> None:
        """Find where the numbers of the step under way stopped being finite: done by itself before a step.

        For loops that give up before the optimizer's step. Told once.
        """
        if self.not_finite is not None:
            return
        with self._calls.paused():
            self.not_finite = origin(self.step + 1, self.model, self._calls.seen)
        is_half = any(p.dtype in {torch.float16, torch.bfloat16} for p in self.model.parameters())
        self._calls.is_kept = False
        self._tell([told_of(self.not_finite, is_half=is_half or torch.is_autocast_enabled())])

    def _tell(self, found: Sequence[Unusual]) -> None:
        self.findings.extend(found)
        for each in found:
            if each.severity != "note":
                self._say(str(each))

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _give_up(self, error: Exception) -> None:
        """What goes wrong here must not end somebody's training."""
        self._is_broken = True
        self._calls.close()
        self._note(
            f"watching failed, and nothing more is measured: {type(error).__name__}: {str(error)[:200]}"
        )

    def _spend(self, began: float) -> None:
        took = time.perf_counter() - began
        self.seconds += took
        self._spent_now += took


def _is_sharded(model: nn.Module) -> bool:
    """Do weights lie in parts on several devices? A pass of one process alone would wait for the others."""
    tensor: Any = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    wrapper: Any = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    if wrapper is not None and any(isinstance(module, wrapper) for module in model.modules()):
        return True
    return tensor is not None and any(isinstance(p, tensor) for p in model.parameters())


def _add(sample: Sample, seen: Seen) -> None:
    sample.norms |= seen.norms
    sample.attentions |= seen.attentions
    for path, size in seen.activations.items():
        sample.layers[path] = LayerSeen(size)


def _to_stderr(text: str) -> None:
    print(f"headwise.watch: {text}", file=sys.stderr)
