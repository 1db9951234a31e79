"""One of our own runs as a subject: its model, a batch of its own text, and the loss of its training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from headwise.checkpoint.run import Run, load_run
from headwise.data.corpus import encode_pairs, load_corpus
from headwise.doctor.subject import Subject
from headwise.errors import HeadwiseError, RunError
from headwise.train.batch import Batch, make_batch

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
            f"{folder} is a public checkpoint: this version of headwise examines its own runs alone; build "
            "the model with its own library and call headwise.examine(model, inputs)"
        )
    run = load_run(folder)
    notes: tuple[str, ...] = ()
    assumed: dict[str, object] = {}
    try:
        batch = _sample(run)
    except (HeadwiseError, OSError) as error:
        batch = _random(run)
        notes = (f"the text of {folder} cannot be read ({error}); random tokens take its place",)
        assumed = {"inputs_from": f"{ROWS} rows of random tokens"}
    pad_id, smoothing = run.tokenizer.pad_id, run.config.train.label_smoothing
    subject = subject_of(run.model, batch, pad_id, smoothing, name=str(folder))
    return ReadRun(subject, assumed, notes)


def subject_of(
    model: Any, batch: Batch, pad_id: int, smoothing: float, *, optimizer: Any = None, name: str = ""
) -> Subject:
    """A model of ours with a batch as training makes it, and the loss of train/loss.py, of whole logits."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        flat = logits.flatten(0, 1), labels.flatten()
        return F.cross_entropy(*flat, ignore_index=pad_id, label_smoothing=smoothing)

    return Subject(
        model,
        (batch.source, batch.decoder_input),
        kind="encoder-decoder",
        pad_id=pad_id,
        targets=batch.labels,
        loss=loss,
        optimizer=optimizer,
        layout="batch-first",
        name=name,
    )


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
