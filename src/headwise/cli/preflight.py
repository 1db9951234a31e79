"""The quick part of the doctor's examination, before the first step of a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headwise.errors import TrainingError

if TYPE_CHECKING:
    from headwise.train.loop import Ready


def preflight(ready: Ready) -> None:
    """Examine the model on a few rows of its first batch; say how much was tried.

    The model, its optimizer and the random state come back as they were, so the run is the same with and
    without. Errors: TrainingError where the doctor finds an error; its report goes to standard error.
    """
    from headwise.doctor.examine import examine_subject
    from headwise.doctor.own_run import subject_of

    subject = subject_of(ready.model, ready.shown, optimizer=ready.optimizer)
    report = examine_subject(subject, target="the model before its first step", quick=True)
    if report.ok("error"):
        clear = len(report.with_verdict("clear"))
        ready.view.line(f"preflight: {clear} checks clear, {len(report.findings)} findings")
        return
    print(report, file=sys.stderr)
    names = ", ".join(f"{found.id} {found.name}" for found in report.findings if found.severity == "error")
    raise TrainingError(f"the examination before training found {names}; --no-preflight trains all the same")
