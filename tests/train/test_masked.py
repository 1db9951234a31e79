"""What is hidden, how often, and that the loss asks for it and for nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from headwise.checkpoint.run import RunFiles
from headwise.data.text import text_of
from headwise.data.text_tokenizer import TextTokenizer
from headwise.errors import DataError
from headwise.train.masked import NOT_ASKED, MaskedLanguageModelling, MaskedValidation, hide_tokens
from headwise.train.tasks import make_task
from tiny_run import tiny_kind

OTHERS = torch.arange(5, 25)
MASK = 3


def within(count: int, share: float, total: int) -> bool:
    """Five standard deviations."""
    return abs(count - share * total) < 5 * math.sqrt(share * (1 - share) * total)


def test_the_shares_are_those_of_bert() -> None:
    ids = OTHERS[torch.randint(len(OTHERS), (400, 500))]
    shown, labels = hide_tokens(ids, 0.15, MASK, OTHERS)
    asked = labels != NOT_ASKED
    number = int(asked.sum())
    assert within(number, 0.15, ids.numel())
    assert within(int((shown[asked] == MASK).sum()), 0.8, number)
    assert within(int((shown[asked] == ids[asked]).sum()), 0.1 + 0.1 / len(OTHERS), number)
    changed = asked & (shown != MASK) & (shown != ids)
    assert within(int(changed.sum()), 0.1 * (1 - 1 / len(OTHERS)), number)
    counts = torch.bincount(shown[changed], minlength=25)
    assert all(within(int(count), 1 / len(OTHERS), int(changed.sum())) for count in counts[5:])
    assert counts[:5].sum() == 0, "a mark was put into the text"


@given(st.floats(0.01, 0.99), st.integers(0, 9))
def test_labels_are_the_hidden_tokens_and_the_rest_stays(share: float, seed: int) -> None:
    ids = OTHERS[torch.randint(len(OTHERS), (4, 9))]
    state = torch.get_rng_state()
    shown, labels = hide_tokens(ids, share, MASK, OTHERS, torch.Generator().manual_seed(seed))
    assert torch.equal(torch.get_rng_state(), state)
    asked = labels != NOT_ASKED
    assert torch.equal(labels[asked], ids[asked]) and torch.equal(shown[~asked], ids[~asked])
    again = hide_tokens(ids, share, MASK, OTHERS, torch.Generator().manual_seed(seed))
    assert torch.equal(again[0], shown) and torch.equal(again[1], labels)


def task_of(folder: Path, smoothing: float = 0.0) -> MaskedLanguageModelling:
    run = folder / "run"
    run.mkdir()
    task = make_task(tiny_kind("masked", run, label_smoothing=smoothing), RunFiles(run), lambda _: None)
    assert isinstance(task, MaskedLanguageModelling)
    task.make_model().double().eval()
    return task


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_on_whole_logits(smoothing: float, tmp_path: Path) -> None:
    task = task_of(tmp_path, smoothing)
    batch = task.batch(task.epoch(0)[0])
    logits = task.model(batch[0])
    flat = logits.flatten(0, 1), batch[1].flatten()
    expected = F.cross_entropy(*flat, ignore_index=NOT_ASKED, label_smoothing=smoothing)
    torch.testing.assert_close(task.loss(batch, task.targets(batch)), expected, rtol=1e-12, atol=0)
    assert 0 < task.targets(batch) < batch[0].numel()


def test_a_batch_without_a_hidden_token_teaches_nothing(tmp_path: Path) -> None:
    task = task_of(tmp_path, 0.1)
    ids = task.batch(task.epoch(0)[0])[0]
    batch = ids, torch.full_like(ids, NOT_ASKED)
    assert task.targets(batch) == 1
    loss = task.loss(batch, 1.0)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in task.model.parameters())


def test_tokens_are_hidden_anew_each_time_but_the_same_for_every_validation(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    rows = task.epoch(0)[0]
    first, second = task.batch(rows), task.batch(rows)
    assert not torch.equal(first[1], second[1])
    assert task.validate() == task.validate()


def test_validation_by_hand(tmp_path: Path) -> None:
    task = task_of(tmp_path, 0.1)
    generator = torch.Generator().manual_seed(0)
    ids = torch.tensor(task.data.validation.ids.astype(np.int64))
    windows = torch.stack([ids[start : start + 8] for start in range(0, len(ids) - 8, 8)])
    shown, labels = hide_tokens(windows, 0.3, task.mask_id, task.others, generator)
    logits, asked = task.model(shown), labels != NOT_ASKED
    found = task.validate()
    assert found.loss == pytest.approx(F.cross_entropy(logits[asked], labels[asked]).item(), rel=1e-9)
    assert found.accuracy == pytest.approx((logits.argmax(-1)[asked] == labels[asked]).double().mean().item())


def test_what_stands_in_for_a_token_is_never_a_mark(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    tokenizer = task.data.tokenizer
    names = tokenizer.names(task.others.tolist())
    assert not any(name.startswith("<") for name in names)
    assert len(names) == tokenizer.vocab_size - 3


def test_a_vocabulary_without_a_mask_is_refused(tmp_path: Path) -> None:
    config = tiny_kind("masked", tmp_path / "run")
    tokenizer = TextTokenizer.train(["some text"], "characters", 0)
    with pytest.raises(DataError, match="expected <mask>; train it anew"):
        MaskedLanguageModelling(config, text_of(np.arange(50), tokenizer))


def test_what_is_told() -> None:
    found = MaskedValidation(1.0, 0.25)
    assert found.metrics("v") == {"v_loss": 1.0, "v_perplexity": math.e, "v_accuracy": 0.25}
    assert found.summary() == "validation loss 1.0000  perplexity 2.72  accuracy 25.0%"
    assert (found.watched("loss"), found.watched("accuracy")) == (1.0, -0.25)
