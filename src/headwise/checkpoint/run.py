"""A run is a directory, and this is what lies in it.

config.yaml           the whole configuration; what `headwise train` compares before it goes on
tokenizer.json        the vocabulary
model.safetensors     the weights to use: the best so far, in the end the best or the average
training.safetensors  everything that going on needs: weights, moments, random state, position
classes.json          the names of the classes, where there are any
tokens/               a text as ids, read through a memory map
checkpoints/          weights of the last validations, for averaging
metrics.jsonl         a line for each logged step and validation
watch.jsonl           a line for each step that was measured (see headwise.watch)
report.html           the same as curves, and what is unusual in them
tensorboard/          the same for TensorBoard, where it is installed
.lock                 held while a process trains the run; empty, and of no meaning afterwards
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from headwise.checkpoint.build import Trainable, build_model
from headwise.checkpoint.folder import check_run_folder
from headwise.checkpoint.settings import differences, read_config, write_config
from headwise.checkpoint.weights import fill_model, load_tensors, model_tensors, save_tensors
from headwise.config import ModelConfig, RunConfig
from headwise.data.text_tokenizer import TextTokenizer
from headwise.data.tokenizer import Tokenizer
from headwise.errors import ConfigError, RunError, StorageError
from headwise.files import write_text_atomically
from headwise.model.encoder_decoder import EncoderDecoder
from headwise.model.language_model import LanguageModel
from headwise.model.text_encoder import MaskedLanguageModel, TextClassifier
from headwise.model.vision import ImageClassifier


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

    @property
    def watch(self) -> Path:
        """What was measured inside the model."""
        return self.folder / "watch.jsonl"

    @property
    def report(self) -> Path:
        """The same as a page."""
        return self.folder / "report.html"

    @property
    def checkpoints(self) -> Path:
        """The weights to average."""
        return self.folder / "checkpoints"

    @property
    def classes(self) -> Path:
        """The names of the classes."""
        return self.folder / "classes.json"

    @property
    def tokens(self) -> Path:
        """The ids of a text, read through a memory map."""
        return self.folder / "tokens"

    def checkpoint(self, step: int) -> Path:
        """The weights as they were validated after this step."""
        return self.checkpoints / f"step-{step:08d}.safetensors"


@dataclass(frozen=True)
class Run:
    """A trained translator with all that using it takes."""

    config: RunConfig
    tokenizer: Tokenizer
    model: EncoderDecoder


@dataclass(frozen=True)
class TextRun:
    """A trained model of one text at a time: one that continues it, fills it in or names its class."""

    config: RunConfig
    tokenizer: TextTokenizer
    model: LanguageModel | MaskedLanguageModel | TextClassifier
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageRun:
    """A trained model that names the class of a picture."""

    config: RunConfig
    model: ImageClassifier
    classes: tuple[str, ...]


def load_translator(folder: str | Path) -> Run:
    """The translator of a run, in evaluation mode.

    Errors: RunError naming what is missing, damaged or foreign, and for a run that does not translate.
    """
    run = load_run(folder)
    if not isinstance(run, Run):
        raise RunError(
            f"{folder} does not translate: it was trained on data.kind {run.config.data.kind}; name a run of "
            "data.kind dates or parallel"
        )
    return run


def load_run(folder: str | Path) -> Run | TextRun | ImageRun:
    """The model of a run of any kind, in evaluation mode.

    Errors: RunError naming what is missing, damaged or foreign.
    """
    files = RunFiles(Path(folder))
    check_run_folder(files.folder)
    config = read_config(files.config)
    if not files.model.exists():
        raise RunError(f"{files.model} is missing: the run has not validated yet; start headwise train again")
    kind = config.data.kind
    tokenizer: Tokenizer | TextTokenizer | None = None
    if kind != "images":
        tokenizer = (Tokenizer if config.is_translation else TextTokenizer).load(files.tokenizer)
    classes = read_classes(files) if kind in ("labelled", "images") else ()
    tensors, about = load_tensors(files.model)
    if about.get("tokenizer") not in (None, tokenizer_fingerprint(files)):
        raise RunError(f"{files.tokenizer} is not the one that {files.model} was trained with; restore it")
    if about.get("classes") not in (None, list(classes)):
        raise RunError(f"{files.classes} is not the one that {files.model} was trained with; restore it")
    try:
        model = build_model(config, tokenizer, classes)
    except ConfigError as error:
        raise RunError(
            f"{files.config} does not fit {files.tokenizer if tokenizer else files.classes}: {error}"
        ) from None
    # a later version may have more settings than the one that trained it; files from before have none
    trained, now = cast("dict[str, object]", about.get("config") or {}), _plain(model.config)
    if any(now.get(name, value) != value for name, value in trained.items()):
        raise RunError(f"{files.config} is not the one that {files.model} was trained with; restore it")
    fill_model(model, tensors, files.model)
    model.eval()
    match model:
        case EncoderDecoder():
            return Run(config, cast(Tokenizer, tokenizer), model)
        case ImageClassifier():
            return ImageRun(config, model, classes)
        case _:
            return TextRun(config, cast(TextTokenizer, tokenizer), model, classes)


def read_classes(files: RunFiles) -> tuple[str, ...]:
    """The names of the classes, in the order of the model's outputs.

    Errors: RunError naming the file when it is missing or damaged.
    """
    try:
        content: object = json.loads(files.classes.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot read the classes {files.classes}: {reason}; restore it") from None
    names = cast("list[object]", content) if isinstance(content, list) else []
    if len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise RunError(f"{files.classes} is damaged: expected a list of two names or more; restore it")
    return tuple(cast("list[str]", names))


def write_classes(files: RunFiles, classes: tuple[str, ...]) -> None:
    """Write the names of the classes; those that a model has learnt are never replaced by others.

    Errors: RunError for classes other than the run's; StorageError as write_atomically.
    """
    if files.training.exists() or files.model.exists():
        known = read_classes(files)
        if known != classes:
            raise RunError(
                f"the data's classes are not those that {files.folder} was trained on: got "
                f"{_brief(classes)}, the run has {_brief(known)}; restore the data or choose another --run"
            )
        return
    write_text_atomically(files.classes, json.dumps(list(classes), ensure_ascii=False, indent=1) + "\n")


def _brief(classes: tuple[str, ...]) -> str:
    more = f" and {len(classes) - 8} more" if len(classes) > 8 else ""
    return f"{', '.join(classes[:8])}{more}"


def _plain(config: ModelConfig) -> dict[str, object]:
    """The settings as JSON gives them back."""
    return json.loads(json.dumps(asdict(config)))


def save_model(files: RunFiles, model: Trainable, step: int) -> None:
    """Write the weights alone, and which tokenizer and classes they go with."""
    about = {
        "kind": "model",
        "step": step,
        "tokenizer": tokenizer_fingerprint(files),
        "classes": list(read_classes(files)) if files.classes.exists() else None,
        "config": asdict(model.config),  # heads, norm and activation leave no trace in the shapes
    }
    save_tensors(files.model, model_tensors(model), about)


def tokenizer_fingerprint(files: RunFiles) -> str | None:
    """Tells tokenizers apart: with another one of equal size a model would answer nonsense."""
    if not files.tokenizer.exists():  # pictures need none
        return None
    return hashlib.sha256(files.tokenizer.read_bytes()).hexdigest()[:16]


@contextmanager
def open_run(config: RunConfig) -> Generator[RunFiles]:
    """The directory that `config.run` names, made where it is new, for this process alone.

    Errors: RunError when it holds something else, another configuration's run (with the differences),
    or is being trained by another process; StorageError when it cannot be written.
    """
    files = RunFiles(config.folder)
    _refuse_strangers(files.folder)  # before a lock is left in somebody's directory
    with _only_one(files.folder):
        if not files.config.exists():
            write_config(files.config, config)
        found = list(differences(read_config(files.config), config))
        if found and not (files.training.exists() or files.model.exists()):
            # nothing was learnt yet: whoever corrects a mistake may use the name again
            for learnt in (files.tokenizer, files.classes):
                learnt.unlink(missing_ok=True)
            write_config(files.config, config)
        elif found:
            raise RunError(
                f"{files.folder} holds a run of another configuration ({'; '.join(found)}); "
                "go on with its own values, or choose another --run"
            )
        yield files


def _refuse_strangers(folder: Path) -> None:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise RunError(
            f"{folder} is or lies below a file: expected a directory; choose another --run"
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot read {folder}: {reason}; choose another --run") from error
    strangers = [name for name in names if not name.startswith(".")]
    if strangers and RunFiles(folder).config.name not in names:
        raise RunError(
            f"{folder} is not empty and not a run (it holds {', '.join(strangers[:3])}); choose another --run"
        )


@contextmanager
def _only_one(folder: Path) -> Generator[None]:
    """Hold the run's lock: two processes that train one run would spoil it. Freed when the process ends."""
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; choose another --run") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"{folder} is being trained by another process; wait for it or stop it") from None
        except OSError as error:
            raise StorageError(f"cannot lock {path}: {error.strerror}; choose another --run") from error
        yield
    finally:
        os.close(descriptor)
