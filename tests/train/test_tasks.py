"""Each recipe has its task."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwise.checkpoint.run import RunFiles
from headwise.train.images import ImageClassification
from headwise.train.labelled import TextClassification
from headwise.train.language import LanguageModelling
from headwise.train.masked import MaskedLanguageModelling
from headwise.train.tasks import make_task
from headwise.train.translation import Translation
from tiny_run import tiny, tiny_kind

TASKS = {
    "language": LanguageModelling,
    "masked": MaskedLanguageModelling,
    "labelled": TextClassification,
    "images": ImageClassification,
}


@pytest.mark.parametrize("kind", TASKS)
def test_the_kind_of_data_decides(kind: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    files = RunFiles(tmp_path / "run")
    task = make_task(tiny_kind(kind, tmp_path / "run"), files, lambda _: None)
    assert type(task) is TASKS[kind]
    assert files.tokenizer.exists() == (kind != "images")
    assert files.classes.exists() == (kind in ("labelled", "images"))


def test_pairs_are_translated(tmp_path: Path) -> None:
    assert type(make_task(tiny(tmp_path), RunFiles(tmp_path), lambda _: None)) is Translation
