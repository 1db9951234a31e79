"""Loss and learning rate over training, from a run's metrics.jsonl."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headwise.errors import DataError, RunError
from headwise.see.drawing import DASHES, LINES, SOFT, Drawing, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[int, float]]


def draw_curves(run: str | Path | Iterable[Mapping[str, Any]], title: str = "") -> Drawing:
    """Draw training loss, validation loss and learning rate by step.

    run: a run's directory, a metrics.jsonl, or the same as mappings with `step` and any of `loss`,
    `validation_loss`, `learning_rate` (so that anybody's numbers can be drawn).
    Errors: RunError for a directory without metrics; DataError for damaged lines, or nothing to draw;
    MissingExtra without matplotlib.
    """
    if isinstance(run, str | Path):
        title, records = title or str(run), read_metrics(Path(run))
    else:
        records = list(run)
    training, validation = _points(records, "loss"), _points(records, "validation_loss")
    rates = _points(records, "learning_rate")
    if not training and not validation:
        raise DataError("nothing to draw: no record has step with loss or validation_loss; log at least one")
    caption = _caption(training, validation)
    ratios = {"height_ratios": [2.4, 1]} if rates else {}
    with sheet(
        8, 5.4 if rates else 4, caption, "drawing the loss", 2 if rates else 1, 1, sharex=True, **ratios
    ) as (figure, grid):
        losses = grid[0][0]
        if training:
            _line(losses, training, 0, "training")
        if validation:
            _line(losses, validation, 1, "validation", "o")
            step, loss = min(validation, key=lambda point: point[1])
            losses.axvline(step, color=SOFT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
            is_late = step > (validation[0][0] + validation[-1][0]) / 2
            losses.annotate(
                f"best {loss:.4g}", (step, loss), (-6 if is_late else 6, 8), textcoords="offset points",
                ha="right" if is_late else "left", color=SOFT, fontsize=9,
            )  # fmt: skip
        losses.set_title(title or "Training")
        losses.set_ylabel("loss (nats a target)")
        losses.legend()
        if rates:
            _line(grid[1][0], rates, 2, "learning rate")
            grid[1][0].set_ylabel("learning rate")
            grid[1][0].ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
            grid[1][0].set_ylim(bottom=0)
        grid[-1][0].set_xlabel("step (optimizer updates)")
    return Drawing(figure, caption)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a run's directory or of its metrics.jsonl; a last line cut short by a kill is left out.

    Errors: RunError where there is no such file; DataError naming the line that is no record.
    """
    file = path / "metrics.jsonl" if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot read {file}: {reason}; name a directory that headwise train made") from None
    records: list[dict[str, Any]] = []
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        try:
            record: object = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if isinstance(record, dict) and isinstance(cast("dict[str, Any]", record).get("step"), int):
            records.append(cast("dict[str, Any]", record))
        elif number < len(lines) or line.endswith("\n"):
            raise DataError(f"{file}:{number} is damaged: expected a JSON object with step; remove the line")
    return records


def _points(records: Sequence[Mapping[str, Any]], name: str) -> Points:
    """Steps with a finite number of this name; of a step told twice the last."""
    found: dict[int, float] = {}
    for record in records:
        step, value = record.get("step"), record.get(name)
        if isinstance(step, int) and isinstance(value, int | float) and math.isfinite(value):
            found[step] = float(value)
    return sorted(found.items())


def _line(axes: Axes, points: Points, number: int, label: str, marker: str = "") -> None:
    steps, values = zip(*points, strict=True)
    lone = "o" if len(points) == 1 else marker
    axes.plot(
        steps, values, color=LINES[number], linestyle=DASHES[number], marker=lone,
        markersize=4, label=label,
    )  # fmt: skip
    axes.grid(axis="y", color="0.92", linewidth=0.7)
    axes.margins(x=0.02)


def _caption(training: Points, validation: Points) -> str:
    """Does it fall, where was it best, and do the two part?"""
    parts: list[str] = []
    if training:
        first, last = training[0], training[-1]
        parts.append(
            f"Training loss goes from {first[1]:.3g} at step {first[0]:,} to {last[1]:.3g} at {last[0]:,}."
        )
    if validation:
        step, best = min(validation, key=lambda point: point[1])
        end_step, end = validation[-1]
        parts.append(f"Validation is best at step {step:,}: {best:.4g}.")
        if end > best * 1.05 and end_step > step:
            parts.append(
                f"It rises to {end:.4g} by step {end_step:,}: from step {step:,} on the model learns its "
                "training "
                "text by heart."
            )
    if training and not training[-1][1] < training[0][1] * 0.99:
        parts.append("The training loss does not fall: headwise doctor looks for the reason.")
    parts.append("Label smoothing, where it is on, is in the training loss and not in the validation loss.")
    return " ".join(parts)
