"""One of our own runs as a subject: its model, a batch of its own text, and the loss of its training."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwise.checkpoint.run import ImageRun, Run, RunFiles, TextRun, load_run
from headwise.data.corpus import encode_pairs, load_corpus
from headwise.data.text import first_ids, text_of
from headwise.doctor.subject import Subject
from headwise.errors import HeadwiseError, RunError
from headwise.train.batch import Batch, make_batch
from headwise.train.labelled import shown_classes
from headwise.train.language import LanguageModelling
from headwise.train.masked import MaskedLanguageModelling
from headwise.train.task import Shown
from headwise.train.tasks import make_task
from headwise.train.translation import shown_pairs

ROWS = 6
_LONGEST = 24  # tokens of a row: longer ones only cost time


@dataclass(frozen=True)
class ReadRun:
    """A run's subject, what was assumed, and what the user should know."""

    subject: Subject
    assumed: dict[str, object]
    notes: tuple[str, ...]


def read_run(folder: Path) -> ReadRun:
    """The trained model of a run, with a few sentences of its own text; random tokens where that is gone.

    Errors: RunError for a directory that no `headwise train` made, or a damaged one.
    """
    if (folder / "config.json").exists() and any(folder.glob("*.safetensors")):
        raise RunError(
            f"{folder} is a public checkpoint: headwise doctor examines its own runs alone; load the model "
            "with headwise.load, or with its own library, and call headwise.examine(model, inputs)"
        )
    run = load_run(folder)
    if not isinstance(run, Run):
        return _read_other(folder, run)
    notes: tuple[str, ...] = ()
    assumed: dict[str, object] = {}
    try:
        batch = _sample(run)
    except (HeadwiseError, OSError) as error:
        batch = _random(run)
        notes = (f"the text of {folder} cannot be read ({error}); random tokens take its place",)
        assumed = {"inputs_from": f"{ROWS} rows of random tokens"}
    shown = shown_pairs(batch, run.tokenizer.pad_id, run.config.train.label_smoothing)
    return ReadRun(subject_of(run.model, shown, name=str(folder)), assumed, notes)


def subject_of(model: Any, shown: Shown, *, optimizer: Any = None, name: str = "") -> Subject:
    """A model of ours with a few rows as training makes them, and the loss of its training."""
    return Subject(
        model,
        shown.inputs,
        kind=shown.kind,
        pad_id=shown.pad_id,
        targets=shown.targets,
        loss=shown.loss,
        optimizer=optimizer,
        generate=_continued if shown.kind == "decoder" else None,
        layout="batch-first",
        name=name,
    )


def _continued(model: Any, prompt: Tensor, new: int) -> Tensor:
    """The prompt and the likeliest tokens after it, one at a time, as decoding steps through a text."""
    cache, ids, newest = model.start(), prompt, prompt
    for _ in range(new):
        newest = model.step(newest, cache).argmax(-1, keepdim=True)
        ids = torch.cat((ids, newest), dim=1)
    return ids


def _read_other(folder: Path, run: TextRun | ImageRun) -> ReadRun:
    """A run that does not translate, with rows of its training data; made-up ones where those are gone."""
    try:
        shown, notes = _shown(run), ()
        assumed: dict[str, object] = {}
    except (HeadwiseError, OSError) as error:
        shown = _made_up(run)
        notes = (f"the data of {folder} cannot be read ({error}); random rows take their place",)
        assumed = {"inputs_from": f"{ROWS} random rows"}
    return ReadRun(subject_of(run.model, shown, name=str(folder)), assumed, notes)


def _shown(run: TextRun | ImageRun) -> Shown:
    """The first rows of the run's data; the run's directory stays as it is."""
    config = run.config
    if config.data.kind == "text":
        assert isinstance(run, TextRun)
        return _windows_of(run, first_ids(config.data.text, run.tokenizer))
    with tempfile.TemporaryDirectory() as name:
        files = RunFiles(Path(name))
        if isinstance(run, TextRun):
            run.tokenizer.save(files.tokenizer)
        task = make_task(config, files, lambda _: None)
        return task.shown(task.epoch(0)[0][:ROWS])


def _windows_of(run: TextRun, ids: npt.NDArray[Any]) -> Shown:
    """Windows that begin one token apart, as training makes them; no longer than they must be."""
    text = replace(run.config.data.text, window=min(_LONGEST, run.config.data.text.window))
    config = replace(run.config, data=replace(run.config.data, text=text))
    task = MaskedLanguageModelling if config.model.num_encoder_layers else LanguageModelling
    shown = task(config, text_of(ids, run.tokenizer))
    return shown.shown(np.arange(min(ROWS, len(ids) - text.window)))


def _made_up(run: TextRun | ImageRun) -> Shown:
    """Random rows in the form of the run's data."""
    config, generator = run.config, torch.Generator().manual_seed(0)
    if isinstance(run, ImageRun):
        patches = config.model.patches
        shape = (ROWS, patches.channels, patches.height, patches.width)
        images = torch.rand(shape, generator=generator)
        return shown_classes(config, images, torch.arange(ROWS) % len(run.classes), None)
    marks = {run.tokenizer.pad_id, run.tokenizer.mask_id, run.tokenizer.unk_id, run.tokenizer.begin_id}
    words = [index for index in range(run.tokenizer.vocab_size) if index not in marks]
    longest = min(_LONGEST, config.model.max_length)
    places = torch.randint(len(words), (ROWS, longest + 1), generator=generator)
    ids = torch.tensor(words)[places]
    if run.classes:
        return shown_classes(config, ids[:, 1:], torch.arange(ROWS) % len(run.classes), run.tokenizer.pad_id)
    return _windows_of(run, ids.flatten().numpy())


def _sample(run: Run) -> Batch:
    """Sentences of unequal lengths from the validation text."""
    small = replace(run.config.data.dates, train_size=64, validation_size=32, test_size=8)
    pairs = load_corpus(replace(run.config.data, dates=small)).validation
    longest = min(_LONGEST, run.config.model.max_length)
    source, target, _ = encode_pairs(pairs, run.tokenizer, longest)
    order = sorted(range(len(source)), key=lambda row: len(target[row]))
    step = max(1, len(order) // ROWS)
    rows = order[::step][:ROWS]
    return make_batch([source[row] for row in rows], [target[row] for row in rows], run.tokenizer)


def _random(run: Run) -> Batch:
    generator = torch.Generator().manual_seed(0)
    first = run.tokenizer.eos_id + 1

    def row(length: int) -> list[int]:
        drawn = torch.randint(first, run.tokenizer.vocab_size, (length,), generator=generator)
        return [int(token) for token in drawn]

    longest = min(_LONGEST, run.config.model.max_length) - 1
    lengths = [max(1, longest - 2 * number) for number in range(ROWS)]
    return make_batch([row(n) for n in lengths], [row(max(1, n - 3)) for n in lengths], run.tokenizer)
