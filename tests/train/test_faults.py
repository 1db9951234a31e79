"""What breaks a run: numbers, files, disks. Named in one line, and what was good is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.checkpoint.run import RunFiles, load_run
from headwise.checkpoint.weights import load_tensors
from headwise.config import RunConfig
from headwise.errors import RunError, StorageError, TrainingError
from headwise.train import loop
from headwise.train.loop import train
from tiny_run import ENVIRONMENT, Crash, CrashAfter, end, silent, tiny


@pytest.mark.parametrize("where", ["loss", "gradient", "weights"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_names_the_step_and_keeps_what_was_good(
    where: str, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, calls = 5, 0
    real_loss, real_rate = loop.cross_entropy, loop.set_learning_rate

    def loss(*given: Any) -> Tensor:
        nonlocal calls
        calls += 1
        result = real_loss(*given)
        if calls == step and where == "loss":
            return result * value
        if calls == step and where == "gradient":
            result.register_hook(lambda gradient: gradient * value)
        return result

    def rate(optimizer: torch.optim.Optimizer, number: float) -> None:
        # an infinite rate breaks the weights at step 6, which validates
        real_rate(optimizer, value if where == "weights" and calls == 6 else number)

    monkeypatch.setattr(loop, "cross_entropy", loss)
    monkeypatch.setattr(loop, "set_learning_rate", rate)
    folder = tmp_path / "run"
    named = 6 if where == "weights" else 5
    with pytest.raises(
        TrainingError, match=rf"^step {named}: expected a finite .* its last good state is kept"
    ):
        train(tiny(folder, max_steps=9), silent())
    assert load_tensors(RunFiles(folder).model)[1]["step"] == 3
    assert all(p.isfinite().all() for p in load_run(folder).model.parameters())
    monkeypatch.undo()
    train(tiny(folder, max_steps=9), silent())
    train(tiny(tmp_path / "whole", max_steps=9), silent())
    assert end(folder) == end(tmp_path / "whole")


def test_nothing_finite_at_the_first_step_says_that_nothing_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = loop.cross_entropy
    monkeypatch.setattr(loop, "cross_entropy", lambda *given: real(*given) * float("nan"))
    with pytest.raises(TrainingError, match=r"^step 1: .* got loss nan .* nothing was saved yet"):
        train(tiny(tmp_path / "run"), silent())


@pytest.fixture(name="stopped")
def a_stopped_run(tmp_path: Path) -> RunConfig:
    config = tiny(tmp_path / "run", max_steps=9, validate_every=2)
    with pytest.raises(Crash):
        train(config, CrashAfter(7))
    return config


@pytest.mark.parametrize(
    "name",
    [
        "training.safetensors", "model.safetensors", "tokenizer.json", "config.yaml",
        "checkpoints/step-00000004.safetensors", "checkpoints/step-00000006.safetensors",
    ],
)  # fmt: skip
@pytest.mark.parametrize("damage", ["truncated", "garbled", "pickled"])
def test_a_damaged_file_is_named_when_the_run_goes_on(name: str, damage: str, stopped: RunConfig) -> None:
    path = Path(stopped.run) / name
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "truncated": content[:middle],
            "garbled": content[:middle] + b"\xff\xfe\x00" + content[middle + 3 :],
            "pickled": b"\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00\x8c\x06danger\x94.",
        }[damage]
    )
    with pytest.raises(RunError, match=Path(name).name):
        train(stopped, silent())


@pytest.mark.parametrize(
    "name", ["model.safetensors", "metrics.jsonl", "checkpoints/step-00000004.safetensors"]
)
def test_a_missing_file_is_named_when_the_run_goes_on(name: str, stopped: RunConfig) -> None:
    (Path(stopped.run) / name).unlink()
    with pytest.raises(RunError, match=Path(name).name):
        train(stopped, silent())


def test_another_runs_tokenizer_is_refused(stopped: RunConfig, tmp_path: Path) -> None:
    other = replace(stopped, run=str(tmp_path / "other"), data=replace(stopped.data, vocab_size=150))
    with pytest.raises(Crash):
        train(other, CrashAfter(1))
    shutil.copy(tmp_path / "other" / "tokenizer.json", Path(stopped.run) / "tokenizer.json")
    with pytest.raises(RunError, match="the training text or the tokenizer is not the one"):
        train(stopped, silent())


FULL = """
import resource, sys
from pathlib import Path
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "tensorboard" else find(name, *rest)
from tiny_run import silent, tiny
from headwise.errors import StorageError
from headwise.train.loop import train
most = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try:
    train(tiny(Path(sys.argv[1])), silent())
except StorageError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "name"), [(500, "config.yaml"), (5_000, "tokenizer.json"), (60_000, "training.safetensors")]
)
def test_a_full_disk_is_one_line_and_the_run_goes_on_later(most: int, name: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "run"), str(most)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    path = tmp_path / "run" / name
    assert result.stdout == f"cannot write {path}: File too large; free space or choose another directory\n"
    assert result.returncode == 0, result.stderr
    train(tiny(tmp_path / "run"), silent())
    train(tiny(tmp_path / "whole"), silent())
    assert end(tmp_path / "run") == end(tmp_path / "whole")


@pytest.mark.slow
def test_on_a_disk_that_really_fills_the_old_state_stands(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small disk")
    try:
        config = tiny(disk / "run")
        with pytest.raises(Crash):
            train(config, CrashAfter(3))
        before = (disk / "run" / "training.safetensors").read_bytes()
        filler = disk / "filler"
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        filler.write_bytes(b"x" * (free - 60_000))
        with pytest.raises(StorageError, match=r"^cannot write .*: No space left on device; free space"):
            train(config, silent())
        assert (disk / "run" / "training.safetensors").read_bytes() == before
        filler.unlink()
        train(config, silent())
        train(tiny(tmp_path / "whole"), silent())
        assert end(disk / "run") == end(tmp_path / "whole")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
