"""The picture is the table: one row of cells a position, one column a dimension."""

from __future__ import annotations

from importlib import util
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from headwise.errors import MissingExtra, StorageError
from headwise.model.positions import sinusoidal_table
from headwise.see.positions import draw_positions


def test_what_is_drawn_is_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    savefig = Figure.savefig

    def save(figure: Figure, *arguments: Any, **options: Any) -> None:
        drawn.append(figure)
        savefig(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", save)
    path = tmp_path / "positions.png"
    draw_positions(12, 16, path)
    axes = drawn[0].axes[0]
    image = axes.images[0]
    np.testing.assert_array_equal(np.asarray(image.get_array()), sinusoidal_table(12, 16).numpy())
    assert image.get_clim() == (-1, 1) and image.origin == "upper"
    assert axes.get_title() == "Sinusoidal position encoding: 12 positions, d_model = 16"
    assert axes.get_ylabel() == "position" and axes.get_xlabel().startswith("dimension")


def test_the_file_is_a_picture_with_both_ends_of_the_colours(tmp_path: Path) -> None:
    path = tmp_path / "positions.png"
    draw_positions(12, 16, path)
    assert list(tmp_path.iterdir()) == [path]
    picture = matplotlib.image.imread(path)[..., :3]
    assert picture.shape[0] > 400 and picture.shape[1] > 800
    blueness = picture[..., 2] - picture[..., 0]
    assert (blueness > 0.2).mean() > 0.1 and (blueness < -0.2).mean() > 0.02


def test_without_matplotlib_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "matplotlib" else find_spec(name))
    with pytest.raises(MissingExtra, match="drawing the position encoding needs matplotlib"):
        draw_positions(4, 8, tmp_path / "p.png")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*p\.png"):
        draw_positions(4, 8, tmp_path / "file" / "p.png")
