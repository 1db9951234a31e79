"""A run of ours as a subject: its own model, text, marks and loss."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwise.checkpoint.run import RunFiles
from headwise.doctor import own_run
from headwise.doctor.examine import examine_subject
from headwise.doctor.load import load
from headwise.doctor.own_run import read_run
from headwise.errors import DataError, RunError
from headwise.train.loop import train
from headwise.train.loss import cross_entropy, supervised
from tiny_run import OTHER_KINDS, silent, tiny, tiny_kind


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(tiny(folder), silent())
    return folder


def test_a_run_comes_with_a_padded_batch_of_its_own_text(run: Path) -> None:
    made = read_run(run)
    subject = made.subject
    source, decoder_input = subject.inputs
    assert subject.kind == "encoder-decoder" and subject.pad_id == 0 and not made.notes and not made.assumed
    assert source.shape[0] == decoder_input.shape[0] == own_run.ROWS
    assert torch.equal(
        subject.targets[:, :-1][decoder_input[:, 1:] != 0], decoder_input[:, 1:][decoder_input[:, 1:] != 0]
    )
    assert (source == 0).any() and (decoder_input[:, 0] == 1).all()
    assert load(str(run)).subject.name == str(run)


def test_the_loss_is_that_of_training(run: Path) -> None:
    subject = read_run(run).subject
    model, labels = subject.model, subject.targets
    assert subject.loss is not None
    with torch.no_grad():
        mine = subject.loss(model(*subject.inputs), labels)
        hidden, kept = supervised(model.hidden(*subject.inputs), labels, 0)
        smoothing = tiny(run).train.label_smoothing
        theirs = cross_entropy(hidden, model.output.weight, kept, smoothing, float(len(kept)))
    torch.testing.assert_close(mine, theirs)


def test_random_tokens_replace_text_that_is_gone(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise DataError("no file de.txt")

    monkeypatch.setattr(own_run, "load_corpus", gone)
    made = read_run(run)
    assert made.assumed == {"inputs_from": f"{own_run.ROWS} rows of random tokens"}
    assert "no file de.txt" in made.notes[0]
    assert made.subject.model(*made.subject.inputs).isfinite().all()


@pytest.fixture(scope="module", params=OTHER_KINDS)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("others") / request.param
    train(tiny_kind(request.param, folder), silent())
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_found_in_a_run_of_any_kind_and_it_stays_as_it_is(other: Path) -> None:
    before = contents(other)
    made = read_run(other)
    assert not made.notes and not made.assumed
    report = examine_subject(made.subject, target=str(other))
    assert list(report.findings) == []
    assert len(report.with_verdict("clear")) > 20
    assert not report.with_verdict("could-not-run")
    assert contents(other) == before


def test_the_loss_of_other_kinds_is_torchs_on_whole_logits(other: Path) -> None:
    subject = read_run(other).subject
    logits, labels = subject.model(*subject.inputs), subject.targets
    assert subject.loss is not None
    mine = subject.loss(logits, labels)
    flat = logits.reshape(-1, logits.size(-1)).log_softmax(-1)
    asked = labels.reshape(-1) >= 0
    right = -flat[asked].gather(1, labels.reshape(-1)[asked][:, None]).mean()
    smoothing = tiny(other).train.label_smoothing
    torch.testing.assert_close(mine, (1 - smoothing) * right - smoothing * flat[asked].mean())


def test_random_rows_replace_data_that_are_gone(other: Path) -> None:
    data = other.parent / f"{other.name}-data"
    data.rename(other.parent / "moved")
    try:
        made = read_run(other)
    finally:
        (other.parent / "moved").rename(data)
    assert made.assumed == {"inputs_from": f"{own_run.ROWS} random rows"}
    assert "cannot be read" in made.notes[0]
    assert list(examine_subject(made.subject, target="", quick=True).findings) == []


def test_a_damaged_run_is_refused(run: Path, tmp_path: Path) -> None:
    RunFiles(tmp_path).config.write_text(RunFiles(run).config.read_text())
    with pytest.raises(RunError, match="has not validated yet"):
        read_run(tmp_path)
