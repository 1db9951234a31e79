"""Scalars for TensorBoard: in a writer of the user's, which stays open, or in a directory."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from headwise.errors import ConfigError, MissingExtra, StorageError
from headwise.see.watch.board import Board
from see.watch.test_sample import SAMPLE


class Writer:
    def __init__(self) -> None:
        self.points: list[tuple[str, float, int]] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.points.append((name, value, step))

    def close(self) -> None:
        raise AssertionError("it is the user's")


def test_every_number_is_a_point() -> None:
    writer = Writer()
    board = Board(writer)
    board.add(SAMPLE)
    board.close()
    assert writer.points == [(name, value, 7) for name, value in SAMPLE.scalars()]


def test_a_directory_gets_the_events_of_the_real_library(tmp_path: Path) -> None:
    board = Board(tmp_path / "events")
    board.add(SAMPLE)
    board.close()
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    (file,) = (tmp_path / "events").iterdir()
    values = [value for event in LegacyEventFileLoader(str(file)).Load() for value in event.summary.value]
    assert {value.tag: pytest.approx(value.simple_value) for value in values} == dict(SAMPLE.scalars())


def test_no_board_takes_no_notice() -> None:
    board = Board(None)
    board.add(SAMPLE)
    board.close()


def test_what_cannot_work_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="got list"):
        Board([])
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="choose another directory"):
        Board(tmp_path / "file" / "events")
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(MissingExtra, match=r"headwise\[tensorboard\]"):
        Board(tmp_path)
