"""A run of ours that is watched: the same bits, a report, curves that go on where a stopped run was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headwise.checkpoint.run import RunFiles
from headwise.checkpoint.weights import load_tensors
from headwise.errors import TrainingError
from headwise.see.watch.history import read_history
from headwise.train.loop import train
from tiny_run import OTHER_KINDS, Crash, CrashAfter, silent, tiny, tiny_kind


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    files = RunFiles(folder)
    found = {f"model {name}": t for name, t in load_tensors(files.model)[0].items()}
    return found | {f"state {name}": t for name, t in load_tensors(files.training)[0].items()}


@pytest.mark.parametrize("kind", ["dates", *OTHER_KINDS])
def test_a_watched_run_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    ends = []
    for name, every in (("plain", 0), ("watched", 2)):
        folder = tmp_path / name
        config = tiny(folder) if kind == "dates" else tiny_kind(kind, folder)
        config = replace(config, train=replace(config.train, watch_every=every))
        train(config, silent())
        ends.append(tensors(folder))
    assert ends[0].keys() == ends[1].keys()
    assert [name for name, tensor in ends[0].items() if not torch.equal(tensor, ends[1][name])] == []
    files = RunFiles(tmp_path / "watched")
    first, *_ = read_history(files.watch)
    assert first.step == 1 and first.attentions and first.norms and first.loss is not None
    assert all(each.heads for each in first.attentions.values())
    assert "Entropy of each head" in files.report.read_text()
    assert not RunFiles(tmp_path / "plain").report.exists()


@pytest.mark.parametrize("settings", [{"accumulate": 2}, {"precision": "bfloat16"}])
def test_gathered_batches_and_half_precision(settings: dict[str, object], tmp_path: Path) -> None:
    ends = []
    for every in (0, 2):
        train(tiny(tmp_path / str(every), watch_every=every, **settings), silent())
        ends.append(tensors(tmp_path / str(every)))
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())
    assert len(read_history(RunFiles(tmp_path / "2").watch)[0].attentions) == 3


def test_a_run_that_was_killed_goes_on_with_its_curves_and_to_the_same_bits(tmp_path: Path) -> None:
    train(tiny(tmp_path / "whole", watch_every=2), silent())
    config = tiny(tmp_path / "killed", watch_every=2)
    with pytest.raises(Crash):
        train(config, CrashAfter(5))
    train(config, silent())
    whole, killed = tensors(tmp_path / "whole"), tensors(tmp_path / "killed")
    assert all(torch.equal(tensor, killed[name]) for name, tensor in whole.items())
    steps = [sample.step for sample in read_history(RunFiles(tmp_path / "killed").watch)]
    assert steps == sorted(set(steps)) and steps[0] == 1 and 5 in steps  # 5: the first after the saved step 4


def test_a_number_that_is_not_finite_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwise.model.norm import LayerNorm

    plain = LayerNorm.forward
    calls: list[int] = []

    def broken(self: LayerNorm, x: torch.Tensor) -> torch.Tensor:
        out = plain(self, x)
        if torch.is_grad_enabled():
            calls.append(1)
        return out * torch.tensor(-1.0).log() if len(calls) > 12 else out  # HERE

    monkeypatch.setattr(LayerNorm, "forward", broken)
    said: list[str] = []
    view = silent()
    monkeypatch.setattr(view, "warn", said.append)
    with pytest.raises(TrainingError, match="expected a finite loss"):
        train(tiny(tmp_path / "run", watch_every=2), view)
    (told,) = said
    assert "HW901" in told and "log makes 1 NaN" in told and "HERE" in told
    assert "log makes 1 NaN" in RunFiles(tmp_path / "run").report.read_text()


def test_a_report_whose_place_is_a_folder_is_a_warning_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RunFiles(tmp_path / "run")
    with pytest.raises(Crash):
        train(tiny(tmp_path / "run", watch_every=2), CrashAfter(5))
    files.report.unlink(missing_ok=True)
    files.report.mkdir()
    said: list[str] = []
    view = silent()
    monkeypatch.setattr(view, "warn", said.append)
    train(tiny(tmp_path / "run", watch_every=2), view)
    assert files.model.exists()
    assert [line for line in said if "its report is not written" in line] == said[:1]
