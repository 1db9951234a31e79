"""What the training loop asks of every kind of task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headwise.checkpoint.run import RunFiles
from headwise.train.task import Shown, Task, Validation
from headwise.train.tasks import make_task
from tiny_run import OTHER_KINDS, tiny, tiny_kind

KINDS = ("dates", *OTHER_KINDS)


@pytest.fixture(params=KINDS)
def task(request: pytest.FixtureRequest, tmp_path: Path) -> Task:
    folder = tmp_path / "run"
    folder.mkdir()
    config = tiny(folder) if request.param == "dates" else tiny_kind(request.param, folder)
    made = make_task(config, RunFiles(folder), lambda _: None)
    made.make_model()
    return made


def test_an_epoch_depends_on_its_number_alone_and_has_every_row_once(task: Task) -> None:
    first, other = task.epoch(3), task.epoch(4)
    task.epoch(0)
    assert all(np.array_equal(a, b) for a, b in zip(first, task.epoch(3), strict=True))
    assert len(first) != len(other) or any(
        not np.array_equal(a, b) for a, b in zip(first, other, strict=False)
    )
    rows = np.concatenate(list(first))
    assert len(set(rows.tolist())) == len(rows)


def test_validation_draws_nothing_changes_nothing_and_says_the_same_again(task: Task) -> None:
    state = torch.get_rng_state()
    task.model.train()  # type: ignore[attr-defined]
    before = {name: tensor.clone() for name, tensor in task.model.state_dict().items()}  # type: ignore[attr-defined]
    first = task.validate()
    assert torch.equal(torch.get_rng_state(), state)
    assert task.model.training and isinstance(first, Validation)  # type: ignore[attr-defined]
    assert all(torch.equal(before[name], t) for name, t in task.model.state_dict().items())  # type: ignore[attr-defined]
    torch.rand(7)  # wherever the random state stands
    again = task.validate()
    assert first.metrics("a") == again.metrics("a") and first.samples == again.samples
    assert first.metrics("a")["a_loss"] == first.loss == first.watched("loss")
    assert f"{first.loss:.4f}" in first.summary() and "\n" not in first.summary()


def test_validation_does_without_the_compiled_pass(task: Task) -> None:
    def never(*_: object) -> torch.Tensor:
        raise AssertionError("validation ran the training pass")

    task.forward = never
    assert task.validate().loss > 0


def test_showing_rows_draws_nothing_and_takes_nothing(task: Task) -> None:
    state = torch.get_rng_state()
    shown = task.shown(task.epoch(0)[0][:3])
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(shown, Shown) and len(shown.inputs[0]) == len(shown.targets) == 3
    assert shown.loss(task.model(*shown.inputs), shown.targets).isfinite()  # type: ignore[attr-defined]


def test_the_loss_is_a_sum_over_the_divisor_and_its_mean_near_that_of_guessing(task: Task) -> None:
    batch = task.batch(task.epoch(0)[0])
    task.model.eval()  # type: ignore[attr-defined]
    targets = task.targets(batch)
    whole, half = task.loss(batch, 1.0), task.loss(batch, 2.0)
    torch.testing.assert_close(whole, 2 * half)
    assert targets > 0 and 0 < whole.item() / targets < 12
    assert str(task.summary()) and len(task.fingerprint()) >= 8
