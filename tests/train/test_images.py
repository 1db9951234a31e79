"""Pictures and classes as a task: the loss is torch's, and the test part is never looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from headwise.checkpoint.run import RunFiles
from headwise.config import ImagesConfig
from headwise.data.images import PictureParts, Pictures
from headwise.train.images import ImageClassification, measure, moved
from headwise.train.tasks import make_task
from tiny_run import tiny_kind


def task_of(folder: Path, shift: float = 1, **settings: float) -> ImageClassification:
    run = folder / "run"
    run.mkdir()
    config = tiny_kind("images", run, **settings)
    config = replace(config, data=replace(config.data, images=replace(config.data.images, shift=shift)))
    task = make_task(config, RunFiles(run), lambda _: None)
    assert isinstance(task, ImageClassification)
    task.make_model().eval()
    return task


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_torchs_on_whole_logits(smoothing: float, tmp_path: Path) -> None:
    task = task_of(tmp_path, label_smoothing=smoothing)
    images, labels = task.batch(task.epoch(0)[0])
    task.model.double()
    batch = images.double(), labels
    expected = F.cross_entropy(task.model(batch[0]), labels, label_smoothing=smoothing)
    torch.testing.assert_close(task.loss(batch, task.targets(batch)), expected, rtol=1e-12, atol=0)


def test_validation_is_picture_by_picture(tmp_path: Path) -> None:
    task = task_of(tmp_path, label_smoothing=0.1)
    part = task.data.validation
    logits = torch.cat([task.model(torch.from_numpy(image[None])) for image in part.images])
    found = task.validate()
    assert found.loss == pytest.approx(
        F.cross_entropy(logits, torch.from_numpy(part.labels)).item(), rel=1e-6
    )
    right = int((logits.argmax(-1).numpy() == part.labels).sum())
    assert found.scores.accuracy == pytest.approx(right / len(part))
    for rows in (1, 2, 50):
        other = measure(task.model, part, task.data.classes, rows)
        assert other.loss == pytest.approx(found.loss, rel=1e-6)
        assert np.array_equal(other.scores.confusion, found.scores.confusion)


def test_every_picture_once_an_epoch_in_an_order_of_the_seed(tmp_path: Path) -> None:
    task = task_of(tmp_path)
    orders = [np.concatenate(list(task.epoch(number))).tolist() for number in (0, 1, 0)]
    assert sorted(orders[0]) == list(range(len(task.data.train)))
    assert orders[0] == orders[2] != orders[1]
    assert {len(rows) for rows in task.epoch(0)[:-1]} == {task.rows} == {96 // 5}


def spot(down: float, right: float) -> torch.Tensor:
    """400 pictures, higher than wide, of one soft spot so far from the middle."""
    rows, columns = torch.arange(40)[:, None] - 19.5 - down, torch.arange(30)[None, :] - 14.5 - right
    return torch.exp(-(rows**2 + columns**2) / 4).expand(400, 1, 40, 30)


def places_of(images: torch.Tensor) -> torch.Tensor:
    """Where the spot of each picture stands, down and right of the middle: [B, 2]."""
    weights = images[:, 0] / images[:, 0].sum((1, 2), keepdim=True)
    rows = (weights.sum(2) * (torch.arange(40) - 19.5)).sum(1)
    return torch.stack((rows, (weights.sum(1) * (torch.arange(30) - 14.5)).sum(1)), dim=1)


def test_pictures_move_by_no_more_than_shift_in_all_directions() -> None:
    steps = places_of(moved(spot(2, -3), ImagesConfig(shift=1.5))) - torch.tensor([2.0, -3.0])
    assert steps.abs().max() < 1.5 + 1e-2
    assert steps.amin(0).max() < -1.3 and steps.amax(0).min() > 1.3
    assert abs(np.corrcoef(steps.T.numpy())[0, 1]) < 0.2, "down and right are drawn apart"


def test_a_turn_keeps_distances_from_the_middle_and_angles_within_bounds() -> None:
    places = places_of(moved(spot(0, 9), ImagesConfig(rotate=30)))
    assert (places.norm(dim=1) - 9).abs().max() < 0.05
    angles = torch.rad2deg(torch.atan2(places[:, 0], places[:, 1]))
    assert angles.abs().max() < 30.5 and angles.min() < -27 and angles.max() > 27


def test_zoom_changes_distances_by_its_share_and_no_angles() -> None:
    places = places_of(moved(spot(6, 8), ImagesConfig(zoom=0.2)))
    sizes = places.norm(dim=1) / 10
    assert 0.79 < sizes.min() < 0.82 and 1.18 < sizes.max() < 1.21
    assert (places / places.norm(dim=1, keepdim=True) - torch.tensor([0.6, 0.8])).abs().max() < 0.01


def test_black_moves_in() -> None:
    images = moved(torch.ones(50, 2, 4, 4), ImagesConfig(shift=2.0))
    assert images.min() == 0 and images.max() <= 1 + 1e-6 and images.shape == (50, 2, 4, 4)


def test_a_batch_is_moved_and_the_data_are_not(tmp_path: Path) -> None:
    task = task_of(tmp_path, shift=1)
    before = task.data.train.images.copy()
    images, _ = task.batch(np.arange(8))
    assert not np.array_equal(images, before[:8]) and np.array_equal(task.data.train.images, before)


def test_without_a_range_nothing_moves_and_nothing_is_drawn(tmp_path: Path) -> None:
    task = task_of(tmp_path, shift=0)
    state = torch.get_rng_state()
    images, labels = task.batch(np.array([3, 1]))
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(images, task.data.train.images[[3, 1]])
    assert np.array_equal(labels, task.data.train.labels[[3, 1]])


def test_the_test_part_is_never_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(tmp_path)

    def look(self: Pictures) -> object:
        raise AssertionError("looked at")

    class Hidden(Pictures):
        images = labels = property(look)  # type: ignore[assignment]

        def __init__(self) -> None:
            return

        def __len__(self) -> int:
            return 7

    data = task.data
    task.data = PictureParts(data.train, data.validation, Hidden(), data.classes)
    task.batch(task.epoch(0)[0])
    task.validate()
    task.shown(np.arange(3))
    assert "7 kept for the test" in task.summary()
    with pytest.raises(AssertionError, match="looked at"):
        task.fingerprint()  # the only one that does: it tells other data apart


def test_the_parts_do_not_depend_on_the_seed_of_training(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    prints = {task_of(tmp_path / name, seed=seed).fingerprint() for name, seed in (("a", 1), ("b", 2))}
    assert len(prints) == 1
