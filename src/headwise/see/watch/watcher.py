"""A watch: hears the steps and calls of a training, measures some of them, and holds what came of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from headwise.doctor.adapt import unwrap
from headwise.errors import ConfigError, StorageError
from headwise.files import write_text_atomically
from headwise.see.watch.board import Board
from headwise.see.watch.calls import Call, Calls
from headwise.see.watch.given import check_place, is_sharded, number_of
from headwise.see.watch.history import write_history
from headwise.see.watch.judge import Judge, Unusual, told_of
from headwise.see.watch.leader import Leader
from headwise.see.watch.nonfinite import NotFinite, origin
from headwise.see.watch.observe import Observer
from headwise.see.watch.sample import LayerSeen, Sample
from headwise.see.watch.steps import Steps, is_skipped, scale_of
from headwise.see.watch.trained import Trained

MOST_CALLS = 64  # calls of one step that are looked at: a loop over the blocks makes one each
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
        self._trained = Trained(self.model)
        self._observer = Observer(self.model, self._trained.names)
        self._calls = Calls(model, self.model, self._entered, self._give_up)
        self._leader = Leader()
        self._steps = Steps(self.model.parameters(), optimizer, self._before, self._after, self._leader.saw)
        self._judge = Judge()
        for sample in self.history:
            self.findings += self._judge.hear(sample)
        self._board = Board(board)
        self._live = live
        self._panel: Any = None
        self._pending: Sample | None = None
        self._unjudged: tuple[Sample, list[str]] | None = None
        self._observed: set[int] = set()
        self._costs = [0.0, 0.0]  # of measuring without the first time, which learns; of the last
        self._spent_now = 0.0
        self._learnt = False
        self._started: float | None = None
        self._ended = 0.0
        self._written = 0.0
        self._is_broken = False
        if is_sharded(self.model):
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
            raise ConfigError("a watch is entered once at a time: it is on already; make another one")
        if self._report is not None:
            check_place(self._report)
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
        try:
            self._hear()
            if self._panel is not None:
                self._panel.stop()
        except Exception as error:
            self._give_up(error)
        self._panel = self._pending = None
        if not self.history:
            self._note(
                "no step of an optimizer that holds the model's weights was seen; call watch.step_taken() "
                "before each change of the weights"
            )
        self._noted(self._board.close)
        try:
            if self._report is not None:
                self.save(self._report)
                is_clear = all(each.severity == "note" for each in self.findings)
                if self.history and is_clear and not is_failing:
                    self._noted(lambda: self._say(f"nothing unusual in {self.step:,} steps; {self._report}"))
        except StorageError:
            if not is_failing:
                raise

    def step_taken(self) -> None:
        """For loops without an optimizer of torch's: call it after each backward pass, before the change."""
        self._before(None, None)
        self._after(None)

    def log(self, **values: Any) -> None:
        """Numbers of the loop to show beside the others, `loss` among them; read only in measured steps.

        Errors: ConfigError for what is no number.
        """
        numbers = {name: number_of(name, value) for name, value in values.items()}
        sample = self._pending if self._calls.seen else None  # else the step it is for has not begun
        if sample is None and self.history and self.history[-1].step == self.step:
            sample = self.history[-1]
        if sample is None:
            return
        for name, tell in numbers.items():
            number = tell()
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
            sample.norms |= seen.norms
            sample.attentions |= seen.attentions
            sample.layers |= {path: LayerSeen(size) for path, size in seen.activations.items()}
        self._spend(began)

    def _before(self, optimizer: Any, loss: Any) -> None:
        if not self._leader.leads(optimizer):
            return
        if self._is_broken:
            return
        began = time.perf_counter()
        try:
            self._hear()
            scale = scale_of(optimizer)
            sample = self._pending
            if (sample is not None or not self._trained.is_known) and self._trained.know():
                self._observer.know(self._trained.names)
            is_finite = self.not_finite is not None or self._trained.guard.is_finite(
                all_of_them=sample is not None
            )
            if not is_finite and not is_skipped(optimizer):
                self.look_for_nan()
            if sample is not None:
                self._calls.close()
                self._measure(sample, optimizer, loss, scale)
        except Exception as error:
            self._give_up(error)
        self._spend(began)

    def _after(self, optimizer: Any) -> None:
        if optimizer is not None and optimizer is not self._leader.optimizer:
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

    def _measure(self, sample: Sample, optimizer: Any, loss: Any, scale: float) -> None:
        """After the backward pass, before the weights change."""
        gradients = self._trained.sizes.gradients(scale)
        sample.gradient = sum(g * g for g in gradients.values() if g is not None) ** 0.5
        for name, size in gradients.items():
            sample.layers[name] = LayerSeen(sample.layers.get(name, LayerSeen()).activation, size)
        sample.without = tuple(self._trained.sizes.without())
        if isinstance(loss, Tensor) and loss.numel() == 1:
            sample.loss = float(loss.detach())
        told = next((call.loss for call in self._calls.seen if call.is_lost_on), None)
        if sample.loss is None and told is not None:
            sample.loss = float(told)
        if optimizer is not None:
            sample.rate = float(optimizer.param_groups[0].get("lr", 0.0))
            self._trained.sizes.keep(self._leader.held())

    def _finish(self, sample: Sample) -> None:
        """After the weights have changed."""
        if self._leader.optimizer is not None:
            shares, still, moving = self._trained.sizes.moved(sample.gradient or 0.0)
            for name, share in shares.items():
                known = sample.layers.get(name, LayerSeen())
                share = None if self._leader.searches else share
                sample.layers[name] = LayerSeen(known.activation, known.gradient, share)
            sample.still = tuple(still) if moving else ()
        self.history.append(sample)
        self._unjudged = sample, self._missing(sample)
        if not self._observed:
            self._note(
                "no call of the model was heard (a loop that calls its methods, or is compiled as a whole): "
                "let it call watch.called(function) instead"
            )
        elif not sample.attentions and not self._observer.notes:
            self._note("no attention was recognised in what the loop calls of the model")
        for note in self._observer.notes:
            self._note(note)
        if self._panel is not None:
            self._panel.show()
        if self._report is not None and time.perf_counter() - self._written > REPORT_EVERY:
            self._written = time.perf_counter()
            try:
                self.save(self._report)
            except StorageError as error:
                self._note(str(error))

    def _hear(self) -> None:
        """Judge the last sample, to which the loop may have logged until the step after it."""
        if self._unjudged is None:
            return
        (sample, missing), self._unjudged = self._unjudged, None
        self._tell(self._judge.hear(sample, missing))
        self._noted(lambda: self._board.add(sample))

    def _noted(self, what: Callable[[], None]) -> None:
        """What fails to be written is a note, and nothing more."""
        try:
            what()
        except Exception as error:
            self._note(f"a board or report could not be written: {type(error).__name__}: {str(error)[:200]}")

    def _missing(self, sample: Sample) -> list[str]:
        if not self._leader.is_certain:
            return []
        held = self._leader.held(by_all=True)
        every = [(name, p) for layer in self._trained.layers for name, p in layer.parameters]
        return [name for name, p in every if id(p) not in held and name not in sample.without]

    def look_for_nan(self) -> None:
        """Find where the numbers of the step under way stopped being finite: done by itself before a step.

        For loops that give up before the optimizer's step. Told once.
        """
        if self.not_finite is not None:
            return
        try:
            self._look_for_nan()
        except Exception as error:
            self._give_up(error)

    def _look_for_nan(self) -> None:
        with self._calls.paused():
            self.not_finite = origin(self.step + 1, self.model, list(self._calls.seen))
        self._calls.is_kept = False
        self._tell([told_of(self.not_finite, is_half=self.not_finite.is_half)])

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


def _to_stderr(text: str) -> None:
    print(f"headwise.watch: {text}", file=sys.stderr)
