"""For a user's own test suite: fail with the doctor's report where a model has a known mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from headwise.doctor.check import Severity
    from headwise.doctor.subject import Kind, Layout


def assert_healthy(
    model: Any,
    inputs: Any,
    *,
    fail_on: Severity = "error",
    kind: Kind | None = None,
    pad_id: int | None = None,
    targets: Any = None,
    loss: Callable[..., Any] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    call: Callable[..., Any] | None = None,
    generate: Callable[..., Any] | None = None,
    train_step: Callable[..., Any] | None = None,
    layout: Layout | None = None,
    select: str | Iterable[str] = (),
    ignore: str | Iterable[str] = (),
    device: str | None = None,
) -> None:
    """Examine a model as headwise.examine does, and accept it where nothing at or above `fail_on` is found.

    Errors: AssertionError with the report as text; ConfigError as headwise.examine.
    """
    from headwise.doctor.examine import examine
    from headwise.doctor.settings import without_suppressed

    __tracebackhide__ = True  # pytest shows the caller's line, not this one
    report = without_suppressed(
        examine(
            model,
            inputs,
            kind=kind,
            pad_id=pad_id,
            targets=targets,
            loss=loss,
            optimizer=optimizer,
            call=call,
            generate=generate,
            train_step=train_step,
            layout=layout,
            select=select,
            ignore=ignore,
            device=device,
        )
    )
    if not report.ok(fail_on):
        raise AssertionError(f"the model is not healthy (fail_on={fail_on!r})\n{report.to_text()}")
