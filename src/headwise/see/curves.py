"""Loss and learning rate over training, from a run's metrics.jsonl."""

# pyright: reportUnknownMemberType=false
# matplotlib leaves **kwargs without a type
from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headwise.errors import DataError, RunError
from headwise.see.drawing import DASHES, LINES, SOFT, Drawing, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = list[tuple[int, float]]
_LARGEST = 1e30  # what is larger is as good as infinite, and no axis can hold it beside other numbers


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
    if not _finite(training) and not _finite(validation):
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
        if _finite(validation):
            step, loss = min(_finite(validation), key=lambda point: point[1])
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
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            record: object = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, brackets without end
            record = None
        if isinstance(record, dict) and _step(cast("dict[str, Any]", record)) is not None:
            records.append(cast("dict[str, Any]", record))
        elif number < len(lines):
            raise DataError(f"{file}:{number} is damaged: expected a JSON object with step; remove the line")
    return records


def _step(record: Mapping[str, Any]) -> int | None:
    step = record.get("step")
    return step if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 2**53 else None


def _points(records: Sequence[Mapping[str, Any]], name: str) -> Points:
    """Steps with a number of this name, NaN for one that is not finite; of a step told twice the last."""
    found: dict[int, float] = {}
    for record in records:
        step, value = _step(record), record.get(name)
        if step is not None and isinstance(value, int | float) and not isinstance(value, bool):
            found[step] = float(value) if -_LARGEST < value < _LARGEST else math.nan
    return sorted(found.items())


def _finite(points: Points) -> Points:
    return [(step, value) for step, value in points if not math.isnan(value)]


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
    """Does it fall, where was it best, do the two part, and is it a number to the end?"""
    parts = [*_training_told(training), *_validation_told(validation)]
    parts.append("Label smoothing, where it is on, is in the training loss and not in the validation loss.")
    return " ".join(parts)


def _training_told(training: Points) -> Iterator[str]:
    lost = [step for step, value in training if math.isnan(value)]
    finite = _finite(training)
    if len(finite) == 1:
        yield f"Training loss is {finite[0][1]:.3g} at step {finite[0][0]:,}."
    elif finite:
        first, last = finite[0], finite[-1]
        yield f"Training loss goes from {first[1]:.3g} at step {first[0]:,} to {last[1]:.3g} at {last[0]:,}."
    if lost:
        yield f"It is no finite number at step {lost[0]:,}: headwise doctor looks for the first operation."
    elif len(finite) > 1 and finite[0][1] - finite[-1][1] <= 0.01 * abs(finite[0][1]):
        yield "The training loss does not fall: headwise doctor looks for the reason."


def _validation_told(validation: Points) -> Iterator[str]:
    finite = _finite(validation)
    if not finite:
        return
    step, best = min(finite, key=lambda point: point[1])
    end_step, end = finite[-1]
    yield f"Validation is best at step {step:,}: {best:.4g}."
    if end - best > 0.05 * abs(best) and end_step > step:
        yield f"It is {end:.4g} at step {end_step:,}: from step {step:,} on the model overfits."
    if len(finite) < len(validation):
        yield "Some of it is no finite number."
