"""The curves are the records; a caption says what became of the loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import DataError, RunError
from headwise.see.curves import draw_curves, read_metrics

RECORDS: list[dict[str, Any]] = [
    *({"step": n, "loss": 5.0 - n / 100, "learning_rate": 1e-3 * n} for n in range(100, 401, 100)),
    {"step": 200, "validation_loss": 2.5},
    {"step": 400, "validation_loss": 3.5, "validation_perplexity": 33.1},
    {"step": 400, "final_loss": 2.5},
]


def write(path: Path, records: list[dict[str, Any]], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail, encoding="utf-8")
    return path


def test_each_line_is_its_numbers_in_order_of_steps() -> None:
    drawn = draw_curves(list(reversed(RECORDS)), "mine")
    losses, rates = drawn.figure.axes
    lines = {
        line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in losses.lines
    }
    assert lines["training"] == [(100, 4.0), (200, 3.0), (300, 2.0), (400, 1.0)]
    assert lines["validation"] == [(200, 2.5), (400, 3.5)]
    assert list(rates.lines[0].get_ydata()) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert losses.get_ylabel() == "loss (nats a target)" and rates.get_xlabel() == "step (optimizer updates)"
    assert losses.get_title(loc="left") == "mine"


def test_the_caption_tells_overfitting_and_a_loss_that_stands_still() -> None:
    assert "It is 3.5 at step 400: from step 200 on the model overfits" in draw_curves(RECORDS).caption
    flat = [{"step": step, "loss": 3.9} for step in (1, 2, 3)]
    assert "The training loss does not fall" in draw_curves(flat).caption
    falling = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}]
    assert "does not fall" not in draw_curves(falling).caption


def test_a_loss_that_is_no_number_any_more_is_told() -> None:
    for lost in (float("nan"), float("inf"), 10**400, 1e308):
        drawn = draw_curves([{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}, {"step": 3, "loss": lost}])
        assert "from 3 at step 1 to 2 at 2. It is no finite number at step 3" in drawn.caption
        assert drawn._repr_png_()


@pytest.mark.parametrize(
    ("losses", "said", "unsaid"),
    [
        ([3.0], "Training loss is 3 at step 0.", "does not fall"),
        ([-1.0, -1.0], "does not fall", "it learns"),
        ([-1.0, -2.0], "goes from -1 at step 0 to -2 at 1.", "does not fall"),
    ],
)
def test_losses_of_any_sign_and_number(losses: list[float], said: str, unsaid: str) -> None:
    records = [{"step": n, "loss": x, "validation_loss": x} for n, x in enumerate(losses)]
    caption = draw_curves(records).caption
    assert said in caption and unsaid not in caption


def test_what_is_no_number_is_left_out() -> None:
    records: list[dict[str, Any]] = [
        {"step": 1, "loss": 2.0}, {"step": 3, "loss": "high"}, {"step": True, "loss": 9.0},
        {"step": 4, "loss": True},
        {"step": 10**400, "loss": 9.0},
    ]  # fmt: skip
    [losses] = draw_curves(records).figure.axes
    assert list(losses.lines[0].get_xdata()) == [1]


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"step": 1, "loss": ' + "9" * 5001 + "}", '{"step": true}', "\x00"]
)
def test_a_line_that_json_cannot_hold_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"metrics\.jsonl:1 is damaged"):
        read_metrics(path)


def test_a_run_or_its_file_is_read(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", RECORDS)
    assert read_metrics(tmp_path) == read_metrics(tmp_path / "metrics.jsonl") == RECORDS
    assert draw_curves(tmp_path).figure.axes[0].get_title(loc="left") == str(tmp_path)


def test_a_line_that_a_kill_cut_short_does_no_harm_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "metrics.jsonl", RECORDS, tail='{"step": 500, "lo')
    assert read_metrics(path) == RECORDS
    path = write(tmp_path / "metrics.jsonl", RECORDS[:1], tail='{"loss": 3}\n{"step": 5}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl:2 is damaged: expected a JSON object with step"):
        read_metrics(path)


def test_nothing_to_draw_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot read .*metrics\.jsonl: No such file"):
        draw_curves(tmp_path)
    with pytest.raises(DataError, match="nothing to draw: no record has step with loss"):
        draw_curves([{"step": 1, "accuracy": 0.5}])
