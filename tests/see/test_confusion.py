"""The picture of a confusion matrix: every count in its cell, every class named, both axes too."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from headwise.errors import ConfigError, StorageError
from headwise.see.confusion import draw_confusion

COUNTS = np.array([[40, 3, 0], [1, 1200, 2], [0, 0, 0]])
NAMES = ["cat", "a $5 $dog", "\u732b"]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is saved."""
    seen: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: Any, **kwargs: Any) -> None:
        seen.append(figure)
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return seen


def test_counts_shares_names_axes_and_caption(tmp_path: Path, figures: list[Figure]) -> None:
    draw_confusion(COUNTS, NAMES, tmp_path / "a.png", "1,246 examples: accuracy 99.5%")
    (figure,) = figures
    axes = figure.axes[0]
    cells = {tuple(map(int, text.get_position())): text.get_text() for text in axes.texts}
    assert cells == {(column, row): str(COUNTS[row, column]) for row in range(3) for column in range(3)}
    shown = np.asarray(axes.images[0].get_array())
    np.testing.assert_allclose(shown, [[40 / 43, 3 / 43, 0], [1 / 1203, 1200 / 1203, 2 / 1203], [0, 0, 0]])
    assert axes.images[0].get_clim() == (0, 1)
    for axis in (axes.xaxis, axes.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()][:2] == NAMES[:2]
    said = [text.get_text() for text in figure.texts]
    assert said[0] == "1,246 examples: accuracy 99.5%"
    assert said[1].startswith("named") and said[2].endswith("true")
    caption = said[3].replace("\n", " ")
    assert caption.endswith("Most often mistaken: cat for a $5 $dog, 3 times.") and "diagonal" in caption
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_is_drawn_outside_the_picture(tmp_path: Path, figures: list[Figure]) -> None:
    for count, name in ((2, "no"), (2, "a rather long name of a class"), (12, "class"), (90, "c")):
        names = [f"{name} {number}" for number in range(count)]
        draw_confusion(np.eye(count, dtype=np.int64), names, tmp_path / "a.png", "1,246 examples of a file")
        figure = figures[-1]
        box = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert bool(figure.axes[0].texts) == (count < 75)


def test_a_label_no_font_has_is_told(tmp_path: Path) -> None:
    one = np.ones((2, 2), dtype=np.int64)
    assert draw_confusion(one, ["\U00016a40", "a"], tmp_path / "a.png", "t") is not None
    assert draw_confusion(one, ["b", "a"], tmp_path / "a.png", "t") is None


def test_what_does_not_fit_or_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"got \[3, 3\] for 2 classes; give a name for each"):
        draw_confusion(COUNTS, NAMES[:2], tmp_path / "a.png", "t")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        draw_confusion(COUNTS, NAMES, tmp_path / "file" / "a.png", "t")
    assert "matplotlib.pyplot" not in sys.modules or sys.modules["matplotlib.pyplot"].get_fignums() == []
