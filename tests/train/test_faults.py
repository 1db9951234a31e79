"""What breaks a run: numbers, files, disks. Named in one line, and what was good is kept."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from headwise.checkpoint import build
from headwise.checkpoint.run import RunFiles, load_translator
from headwise.checkpoint.weights import load_tensors
from headwise.config import RunConfig
from headwise.data.tokenizer import Tokenizer
from headwise.errors import RunError, StorageError, TrainingError
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.train import loop, translation
from headwise.train.loop import train
from headwise.train.progress import View
from headwise.train.validate import TranslationValidation
from tiny_run import ENVIRONMENT, Crash, CrashAfter, end, silent, tiny, with_model


@pytest.mark.parametrize(
    ("where", "step"),
    # training saves at step 4 and validates at step 6
    [("loss", 5), ("gradient", 5), ("weights", 4), ("weights", 6), ("validation", 6)],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_names_the_step_and_keeps_what_was_good(
    where: str, step: int, value: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    real_loss, real_rate, real_validate = (
        translation.cross_entropy,
        loop.set_learning_rate,
        translation.validate,
    )

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
        real_rate(optimizer, value if where == "weights" and calls == step else number)

    def validation(*given: Any) -> TranslationValidation:
        result = real_validate(*given)
        return replace(result, loss=value) if where == "validation" and calls == step else result

    monkeypatch.setattr(translation, "cross_entropy", loss)
    monkeypatch.setattr(loop, "set_learning_rate", rate)
    monkeypatch.setattr(translation, "validate", validation)
    folder = tmp_path / "run"
    said = rf"^step {step}: expected (a )?finite .* its last good state is kept"
    with pytest.raises(TrainingError, match=said):
        train(tiny(folder, max_steps=9), silent())
    assert load_tensors(RunFiles(folder).model)[1]["step"] == 3
    assert all(p.isfinite().all() for p in load_translator(folder).model.parameters())
    tensors, about = load_tensors(RunFiles(folder).training)
    assert about["progress"]["step"] == (3 if (where, step) == ("weights", 4) else 4)
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    monkeypatch.undo()
    train(tiny(folder, max_steps=9), silent())
    train(tiny(tmp_path / "whole", max_steps=9), silent())
    assert end(folder) == end(tmp_path / "whole")


class Breaking(View):
    """Spoils the model after the update of a step."""

    def __init__(self, step: int, spoil: Callable[[EncoderDecoder], object]) -> None:
        super().__init__(Console(file=io.StringIO()))
        self._step, self._spoil = step, spoil
        self.model: EncoderDecoder | None = None

    def make(self, *given: Any) -> EncoderDecoder:
        self.model = EncoderDecoder(*given)
        return self.model

    def advance(self, step: int, *rest: Any) -> None:
        if step == self._step:
            assert self.model is not None
            with torch.no_grad():
                self._spoil(self.model)


@pytest.mark.parametrize(("step", "kept"), [(1, "nothing was saved yet"), (5, "its last good state is kept")])
def test_control_c_saves_no_broken_weights(
    step: int, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(model: EncoderDecoder) -> None:
        model.output.weight[-1, -1] = torch.inf
        signal.raise_signal(signal.SIGINT)

    view = Breaking(step, spoil)
    monkeypatch.setattr(build, "EncoderDecoder", view.make)
    with pytest.raises(TrainingError, match=rf"^step {step}: expected finite weights .*; {kept}"):
        train(tiny(tmp_path / "run"), view)
    monkeypatch.undo()
    train(tiny(tmp_path / "run"), silent())
    train(tiny(tmp_path / "whole"), silent())
    assert end(tmp_path / "run") == end(tmp_path / "whole")


def test_a_broken_weight_that_validation_never_meets_stays_out_of_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(model: EncoderDecoder) -> None:
        model.source_embedding.table.weight[Tokenizer.load(files.tokenizer).bos_id] = torch.inf

    files, view = RunFiles(tmp_path / "run"), Breaking(6, spoil)
    config = with_model(tiny(files.folder), tie_embeddings=False)
    monkeypatch.setattr(build, "EncoderDecoder", view.make)
    with pytest.raises(TrainingError, match=r"^step 6: expected finite weights .*its last good state"):
        train(config, view)
    for path in (files.model, files.training, *files.checkpoints.iterdir()):
        assert all(tensor.isfinite().all() for tensor in load_tensors(path)[0].values()), path.name


def test_nothing_finite_at_the_first_step_says_that_nothing_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = translation.cross_entropy
    monkeypatch.setattr(translation, "cross_entropy", lambda *given: real(*given) * float("nan"))
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
    with pytest.raises(RunError, match="the training data or the tokenizer is not the one"):
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
