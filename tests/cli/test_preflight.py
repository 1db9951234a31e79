"""A run is examined before its first step: it is the same run with and without, and an error stops it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from headwise.cli import main
from headwise.cli.preflight import preflight
from headwise.cli.recipe import write_recipe
from headwise.errors import TrainingError
from headwise.model import encoder_decoder
from headwise.train.loop import ROWS_SHOWN, Ready, train
from headwise.train.progress import View
from tiny_run import OTHER_KINDS, end, silent, tiny, tiny_kind


def all_visible(num_queries: int, num_keys: int | None = None, device: Any = None) -> Tensor:
    """In place of the causal mask, one that hides nothing."""
    return torch.ones(1, 1, num_queries, num_keys or num_queries, dtype=torch.bool, device=device)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that sees the words it should guess."""
    monkeypatch.setattr(encoder_decoder, "causal_keep", all_visible)


def told() -> tuple[View, Callable[[], list[str]]]:
    shown = io.StringIO()
    return View(Console(file=shown, width=200)), lambda: shown.getvalue().splitlines()


def test_a_run_ends_with_the_same_bits_with_and_without(tmp_path: Path) -> None:
    view, lines = told()
    train(tiny(tmp_path / "with"), view, before=preflight)
    train(tiny(tmp_path / "without"), silent())
    assert end(tmp_path / "with") == end(tmp_path / "without")
    (line,) = [line for line in lines() if line.startswith("preflight: ")]
    clear = int(line.removeprefix("preflight: ").partition(" checks clear, ")[0])
    assert clear >= 20 and line.endswith(" 0 findings")


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_run_of_any_kind_is_clear_and_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    view, lines = told()
    train(tiny_kind(kind, tmp_path / "a" / "run"), view, before=preflight)
    train(tiny_kind(kind, tmp_path / "b" / "run"), silent())
    first, second = end(tmp_path / "a" / "run"), end(tmp_path / "b" / "run")
    for one in (first, second):
        del one["config"]  # holds the folder of the data
    assert first == second
    (line,) = [line for line in lines() if line.startswith("preflight: ")]
    assert line.endswith(" 0 findings") and int(line.split()[1]) >= 10


def test_an_error_stops_the_run_before_its_first_step(
    tmp_path: Path, broken: None, capsys: pytest.CaptureFixture[str]
) -> None:
    view, lines = told()
    with pytest.raises(TrainingError, match=r"HW101 causal-leak.*--no-preflight") as raised:
        train(tiny(tmp_path / "run"), view, before=preflight)
    assert "\n" not in str(raised.value)
    report = capsys.readouterr().err
    assert "HW101 causal-leak" in report and "encoder_decoder.py" in report
    assert not any("step" in line for line in lines())
    assert not list((tmp_path / "run").glob("*.safetensors"))


def test_the_command_stops_unless_it_is_told_not_to_look(
    tmp_path: Path, broken: None, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(write_recipe(tiny(tmp_path / "run")), encoding="utf-8")
    assert main(["train", str(recipe)]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("headwise: the examination before training")
    assert main(["train", str(recipe), "--no-preflight"]) == 0
    output, error = capsys.readouterr()
    assert "final" in output + error and "preflight" not in output + error


def test_what_is_shown_is_a_part_of_the_first_batch_and_a_finished_run_is_not_shown(tmp_path: Path) -> None:
    seen: list[Ready] = []
    first = train(tiny(tmp_path / "run"), silent(), before=seen.append)
    (ready,) = seen
    source, decoder_input = ready.shown.inputs
    labels = ready.shown.targets
    assert source.size(0) == labels.size(0) <= ROWS_SHOWN
    assert torch.equal(decoder_input[:, 1:], labels[:, :-1]) or ready.shown.pad_id in (labels)
    again = train(tiny(tmp_path / "run"), silent(), before=seen.append)
    assert len(seen) == 1 and again.step == first.step


def test_what_a_look_raises_ends_the_call_and_a_stopped_run_is_looked_at_again(tmp_path: Path) -> None:
    def refuse(_: Ready) -> Any:
        raise TrainingError("no; try again")

    with pytest.raises(TrainingError, match="no; try again"):
        train(tiny(tmp_path / "run"), silent(), before=refuse)
    assert train(tiny(tmp_path / "run"), silent(), before=preflight).step == 6
