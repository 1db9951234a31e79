"""Texts and classes as a task: the loss is torch's, the scores scikit-learn's, the names are never lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import metrics
from torch.nn import functional as F

from headwise.checkpoint.run import RunFiles, load_run
from headwise.errors import DataError, RunError
from headwise.evaluate.classes import ClassScores
from headwise.train.labelled import ClassValidation, TextClassification
from headwise.train.loop import train
from headwise.train.tasks import make_task
from tiny_run import silent, tiny_kind


def task_of(folder: Path, told: list[str] | None = None, **settings: float) -> TextClassification:
    run = folder / "run"
    run.mkdir()
    warn = (told if told is not None else []).append
    task = make_task(tiny_kind("labelled", run, **settings), RunFiles(run), warn)
    assert isinstance(task, TextClassification)
    task.make_model().double().eval()
    return task


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_on_whole_logits(smoothing: float, tmp_path: Path) -> None:
    task = task_of(tmp_path, label_smoothing=smoothing)
    batch = task.batch(task.epoch(0)[0])
    expected = F.cross_entropy(task.model(batch[0]), batch[1], label_smoothing=smoothing)
    torch.testing.assert_close(task.loss(batch, task.targets(batch)), expected, rtol=1e-12, atol=0)


def test_validation_is_text_by_text(tmp_path: Path) -> None:
    """Without padding, without a batch; the order of the batches moves no number."""
    task = task_of(tmp_path, label_smoothing=0.1)
    logits = torch.cat([task.model(torch.tensor([ids])) for ids in task.held_out.ids])
    labels = torch.tensor(task.held_out.classes)
    found = task.validate()
    assert found.loss == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-12)
    named = logits.argmax(-1)
    assert np.array_equal(found.scores.confusion, metrics.confusion_matrix(labels, named, labels=[0, 1]))


def test_every_text_begins_with_the_class_mark_and_its_class_stays_with_it(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    ids, classes = task.batch(task.epoch(0)[0])
    assert (ids[:, 0] == task.tokenizer.begin_id).all()
    known = dict(zip(map(tuple, task.train.ids), task.train.classes, strict=True))
    for row, label in zip(ids.tolist(), classes.tolist(), strict=True):
        text = tuple(index for index in row if index != task.tokenizer.pad_id)
        assert known[text] == label or list(map(tuple, task.train.ids)).count(text) > 1


def test_long_texts_are_cut_and_counted(tmp_path: Path) -> None:
    config = tiny_kind("labelled", tmp_path / "run")
    rows = [f"{'long ' * 40 if n < 3 else 'short'} {n},{n % 2}" for n in range(20)]
    (Path(config.data.labelled.folder) / "train.csv").write_text("text,label\n" + "\n".join(rows))
    (tmp_path / "run").mkdir()
    told: list[str] = []
    task = make_task(config, RunFiles(tmp_path / "run"), told.append)
    assert isinstance(task, TextClassification)
    assert sum(int(line.split()[1]) for line in told) == 3 and "texts were cut: over 24 tokens" in told[0]
    assert max(len(row) for part in (task.train, task.held_out) for row in part.ids) == 24


def test_the_classes_of_a_trained_run_are_never_replaced(tmp_path: Path) -> None:
    """Other names for the same outputs would be a silent lie."""
    config = tiny_kind("labelled", tmp_path / "run")
    path = Path(config.data.labelled.folder) / "train.csv"
    train(config, silent())
    before = RunFiles(tmp_path / "run").classes.read_bytes()
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace(",odd", ",another"), encoding="utf-8")
    with pytest.raises(RunError, match=r"are not those that .* got another, even, the run has even, odd"):
        train(config, silent())
    assert RunFiles(tmp_path / "run").classes.read_bytes() == before
    path.write_text(content.replace("even", "ev\u00e9n"), encoding="utf-8")
    with pytest.raises(RunError):
        train(config, silent())
    path.write_text(content, encoding="utf-8")
    train(config, silent())
    load_run(tmp_path / "run")


def test_what_was_not_learnt_yet_may_be_corrected(tmp_path: Path) -> None:
    config = tiny_kind("labelled", tmp_path / "run")
    path = Path(config.data.labelled.folder) / "train.csv"
    (tmp_path / "run").mkdir()
    files = RunFiles(tmp_path / "run")
    content = path.read_text(encoding="utf-8")
    path.write_text(content.replace(",odd", ",ood"), encoding="utf-8")
    make_task(config, files, lambda _: None)
    path.write_text(content, encoding="utf-8")
    make_task(config, files, lambda _: None)
    assert '"odd"' in files.classes.read_text()


def test_a_text_longer_than_a_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="raise batch_tokens"):
        task_of(tmp_path, batch_tokens=4)


def test_what_is_told() -> None:
    found = ClassValidation(1.0, ClassScores.of("ab", [0, 0, 1], [0, 1, 1]))
    assert found.metrics("v") == {"v_loss": 1.0, "v_accuracy": 2 / 3, "v_macro_f1": pytest.approx(2 / 3)}
    assert found.summary() == "validation loss 1.0000  accuracy 66.67%  macro-F1 66.67%"
    assert (found.watched("loss"), found.watched("accuracy")) == (1.0, -2 / 3)
