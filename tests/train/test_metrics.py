"""Lines that can be cut back to what a state remembers; TensorBoard where it is."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from headwise.errors import RunError, StorageError
from headwise.train.metrics import Metrics


def test_each_line_is_an_object_with_its_step(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, 0, 0)
    metrics.write(5, loss=1.5, note="süß")
    metrics.write(10, loss=0.1 + 0.2)
    metrics.sync()
    assert metrics.bytes == path.stat().st_size
    metrics.close()
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines == [{"step": 5, "loss": 1.5, "note": "süß"}, {"step": 10, "loss": 0.1 + 0.2}]


def test_lines_after_the_remembered_length_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, 0, 0)
    metrics.write(1, loss=1.0)
    remembered = metrics.bytes
    metrics.write(2, loss=0.5)
    metrics.close()
    metrics = Metrics(path, remembered, 1)
    metrics.write(3, loss=0.25)
    metrics.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 3]


@pytest.mark.parametrize("content", [None, b"", b'{"step": 1}\n'])
def test_a_file_shorter_than_remembered_is_damaged(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        RunError, match=rf"metrics\.jsonl is damaged: .* 100 bytes, got {len(content or b'')}"
    ):
        Metrics(path, 100, 1)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"cannot write .*metrics\.jsonl: Is a directory; free space"):
        Metrics(tmp_path / "metrics.jsonl", 0, 0)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    metrics = Metrics(path, 0, 0)
    with pytest.raises(StorageError, match=r"cannot write .*metrics\.jsonl: No space left on device"):
        metrics.write(1, loss=1.0)
    metrics.close()


TENSORBOARD = """
import logging, sys
from pathlib import Path
from headwise.train.metrics import Metrics
metrics = Metrics(Path(sys.argv[1]) / "metrics.jsonl", 0, 0)
metrics.write(1, loss=1.0, note="words")
metrics.sync()
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
def points():
    board = EventAccumulator(sys.argv[1] + "/tensorboard")
    board.Reload()
    assert board.Tags()["scalars"] == ["loss"], board.Tags()
    return [(point.step, point.value) for point in board.Scalars("loss")]
assert points() == [(1, 1.0)], points()  # already on disk, as a state that remembers it needs
metrics.write(2, loss=0.5)
metrics.close()
metrics = Metrics(Path(sys.argv[1]) / "metrics.jsonl", metrics.bytes, 1)  # a state of step 1
metrics.write(2, loss=0.25)
metrics.close()
logging.disable()  # the reader tells that it purges the first point of step 2
assert points() == [(1, 1.0), (2, 0.25)], points()
"""


@pytest.mark.slow
def test_tensorboard_gets_the_numbers_and_says_nothing(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    result = subprocess.run(
        [sys.executable, "-c", TENSORBOARD, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert len(list((tmp_path / "tensorboard").glob("events.out.tfevents.*"))) == 2


def test_without_tensorboard_nothing_is_missed(tmp_path: Path) -> None:
    assert importlib.util.find_spec("tensorboard") is None  # conftest hides it
    metrics = Metrics(tmp_path / "metrics.jsonl", 0, 0)
    metrics.write(1, loss=1.0)
    metrics.sync()
    metrics.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
