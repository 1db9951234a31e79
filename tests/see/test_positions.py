"""The picture is the table: one row of cells a position, one column a dimension; or one row a head."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import torch

from headwise import ModelConfig
from headwise.model.positions import sinusoidal_table
from headwise.see.order import order_of
from headwise.see.positions import draw_positions

CONFIG = ModelConfig(vocab_size=20, d_model=16, num_heads=2, d_ff=16)


def test_what_is_drawn_is_the_table() -> None:
    drawn = draw_positions(CONFIG, 12)
    axes = drawn.figure.axes[0]
    image = axes.images[0]
    np.testing.assert_array_equal(np.asarray(image.get_array()), sinusoidal_table(12, 16).numpy())
    assert image.get_clim() == (-1, 1) and image.origin == "upper"
    assert axes.get_title(loc="left") == "Sinusoidal positions: 12 positions, 16 dimensions"
    assert axes.get_ylabel() == "position (tokens)" and axes.get_xlabel().startswith("dimension")
    assert "Left columns change with every position" in drawn.caption


def test_biases_are_drawn_by_distance() -> None:
    alibi = replace(CONFIG, positions="alibi")
    drawn = draw_positions(alibi, 6)
    axes = drawn.figure.axes[0]
    np.testing.assert_array_equal(np.asarray(axes.images[0].get_array()), order_of(alibi, 6).bias)
    assert axes.images[0].get_extent() == [-5.5, 5.5, 1.5, -0.5]
    assert axes.get_xlabel().startswith("distance (tokens)") and axes.get_ylabel() == "head"


def test_a_table_that_cannot_tell_positions_apart_is_said_to() -> None:
    same = torch.randn(1, 8).expand(6, 8)
    assert "5 neighbouring rows are equal: these positions are not told apart" in draw_positions(same).caption
    noise = draw_positions(torch.randn(50, 64)).caption
    assert (
        "Neighbouring rows have a cosine of -0.0" in noise
        or "Neighbouring rows have a cosine of 0.0" in noise
    )


def test_the_file_is_a_picture_with_both_ends_of_the_colours(tmp_path: Path) -> None:
    path = draw_positions(CONFIG, 12).save(tmp_path / "positions.png")
    picture = matplotlib.image.imread(path)[..., :3]
    assert picture.shape[0] > 400 and picture.shape[1] > 800
    blueness = picture[..., 2] - picture[..., 0]
    assert (blueness > 0.2).mean() > 0.1 and (blueness < -0.2).mean() > 0.02
