"""A run is a directory, and this is what lies in it.

config.yaml           the whole configuration; what `headwise train` compares before it goes on
tokenizer.json        the vocabulary
model.safetensors     the weights to use: the best so far, in the end the best or the average
training.safetensors  everything that going on needs: weights, moments, random state, position
checkpoints/          weights of the last validations, for averaging
metrics.jsonl         a line for each logged step and validation
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from headwise.checkpoint.weights import fill_model, load_tensors, model_tensors, save_tensors
from headwise.config import DataConfig, DatesConfig, ModelConfig, ParallelConfig, RunConfig, TrainConfig
from headwise.data.tokenizer import Tokenizer
from headwise.errors import ConfigError, RunError, StorageError
from headwise.files import write_text_atomically
from headwise.model.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class RunFiles:
    """The paths inside a run's directory."""

    folder: Path

    @property
    def config(self) -> Path:
        """The configuration."""
        return self.folder / "config.yaml"

    @property
    def tokenizer(self) -> Path:
        """The vocabulary."""
        return self.folder / "tokenizer.json"

    @property
    def model(self) -> Path:
        """The weights to use."""
        return self.folder / "model.safetensors"

    @property
    def training(self) -> Path:
        """The state to go on from."""
        return self.folder / "training.safetensors"

    @property
    def metrics(self) -> Path:
        """What was measured."""
        return self.folder / "metrics.jsonl"

    def checkpoint(self, step: int) -> Path:
        """The weights as they were validated after this step."""
        return self.folder / "checkpoints" / f"step-{step:08d}.safetensors"


@dataclass(frozen=True)
class Run:
    """A trained model with all that using it takes."""

    config: RunConfig
    tokenizer: Tokenizer
    model: EncoderDecoder


def load_run(folder: Path) -> Run:
    """The model of a run, in evaluation mode.

    Errors: RunError naming what is missing, damaged or foreign.
    """
    files = RunFiles(folder)
    if not folder.is_dir():
        raise RunError(f"{folder} is not a directory: expected a run that headwise train made")
    if not files.config.exists():
        raise RunError(f"{folder} is not a run: it has no config.yaml; headwise train makes one")
    config = read_config(files.config)
    tokenizer = Tokenizer.load(files.tokenizer)
    if not files.model.exists():
        raise RunError(f"{files.model} is missing: the run has not validated yet; start headwise train again")
    tensors, _ = load_tensors(files.model)
    model = EncoderDecoder(config.model.with_vocabulary(tokenizer.vocab_size, tokenizer.pad_id))
    fill_model(model, tensors, files.model)
    return Run(config, tokenizer, model.eval())


def save_model(path: Path, model: EncoderDecoder, step: int) -> None:
    """Write the weights alone."""
    save_tensors(path, model_tensors(model), {"kind": "model", "step": step})


def open_run(config: RunConfig) -> RunFiles:
    """The directory that `config.run` names, made where it is new.

    Errors: RunError when it holds something else or another configuration's run, with the
    differences; StorageError when it cannot be written.
    """
    files = RunFiles(Path(config.run))
    if files.config.exists():
        differences = list(_differences(read_config(files.config), config))
        if differences:
            raise RunError(
                f"{files.folder} holds a run of another configuration ({'; '.join(differences)}); "
                "go on with its own values, or choose another --run"
            )
        return files
    if files.folder.exists() and not files.folder.is_dir():
        raise RunError(f"{files.folder} is a file: expected a directory for the run; choose another --run")
    try:
        strangers = sorted(p.name for p in files.folder.iterdir() if not p.name.startswith("."))
    except FileNotFoundError:
        strangers = []
    except OSError as error:
        raise StorageError(f"cannot read {files.folder}: {error.strerror}; choose another --run") from error
    if strangers:
        raise RunError(
            f"{files.folder} is not empty and not a run (it holds {', '.join(strangers[:3])}); choose another --run"
        )
    write_text_atomically(files.config, yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True))
    return files


@contextmanager
def only_one(files: RunFiles) -> Iterator[None]:
    """Hold the run's lock: two processes that train one run would spoil it. Freed when the process ends."""
    path = files.folder / ".lock"
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; choose another --run") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"{files.folder} is being trained by another process; wait for it or stop it") from None
        yield
    finally:
        os.close(descriptor)


def read_config(path: Path) -> RunConfig:
    """The configuration that a run was started with.

    Errors: RunError naming the file when it is no configuration of headwise.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _filled(RunConfig, content)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, ValueError, ConfigError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{path} is damaged or no configuration of headwise: {reason}; restore it") from None


_SECTIONS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "train": TrainConfig,
    "dates": DatesConfig,
    "parallel": ParallelConfig,
}


def _filled(kind: type[Any], content: object) -> Any:
    """A dataclass from what YAML gave; its own checks run as at any construction."""
    if not isinstance(content, dict):
        raise TypeError(f"expected the fields of {kind.__name__}, got {type(content).__name__}")
    values: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", content).items():
        values[name] = _filled(_SECTIONS[name], value) if name in _SECTIONS else value
        if isinstance(value, list):
            values[name] = tuple(cast("list[Any]", value))
    return kind(**values)


def _plain(config: Any) -> dict[str, Any]:
    return {
        name: list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else _plain(value) if name in _SECTIONS else value
        for name, value in ((f.name, getattr(config, f.name)) for f in dataclasses.fields(config))
    }


def _differences(old: Any, new: Any, prefix: str = "") -> Iterator[str]:
    for item in dataclasses.fields(old):
        before, after = getattr(old, item.name), getattr(new, item.name)
        if item.name in _SECTIONS:
            yield from _differences(before, after, f"{prefix}{item.name}.")
        elif before != after and not (prefix == "" and item.name == "run"):  # a run may be moved
            yield f"{prefix}{item.name}: the run has {before}, asked for {after}"
