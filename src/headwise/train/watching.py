"""`headwise.watch` in a run of ours: its report beside the weights, what is unusual as lines of the view."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from torch import Tensor, nn
from torch.optim import Optimizer

from headwise.checkpoint.run import RunFiles
from headwise.errors import StorageError
from headwise.see.watch.history import read_history, write_history
from headwise.see.watch.watcher import Watch
from headwise.train.metrics import Metrics


class Watching:
    """A run's watch; a context manager for the time of its steps.

    step: those that were taken by earlier calls; what they measured is read again, what came after is not.
    warn: what is unusual goes there, a line each.
    Law: the run ends with the same bits as one that is not watched.
    """

    def __init__(
        self,
        files: RunFiles,
        model: nn.Module,
        optimizer: Optimizer,
        every: int,
        step: int,
        metrics: Metrics,
        warn: Callable[[str], None],
    ) -> None:
        self._files, self._warn, self._has_failed = files, warn, False
        history = [sample for sample in read_history(files.watch) if sample.step <= step]
        self._watch = Watch(
            model, optimizer, every, board=metrics, live=False, say=warn, step=step, history=history
        )

    def around(self, forward: Callable[..., Tensor], plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """What to call in place of `forward`; plain: the same where that is compiled."""
        return self._watch.called(forward, plain)

    def __enter__(self) -> Watching:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.stop(is_failing=error is not None)
        if error is None:
            self.save()

    def log(self, *, loss: float) -> None:
        """The loss of the step under way."""
        self._watch.log(loss=loss)

    def explain(self) -> None:
        """Before a step with a loss or gradient that is not finite is given up: say where it began."""
        self._watch.look_for_nan()
        self.save()

    def save(self) -> None:
        """Write report.html and what it is made of; where that fails, say so once: the run goes on."""
        try:
            write_history(self._files.watch, self._watch.history)
            self._watch.save(self._files.report)
        except StorageError as error:
            if not self._has_failed:
                self._warn(f"the run is watched, but its report is not written: {error}")
            self._has_failed = True
