"""The picture of a mask is the mask, and its caption says what the mask does."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
import torch

from headwise.errors import ConfigError
from headwise.model.masks import causal_keep, padding_keep, window_keep
from headwise.see.drawing import Drawing
from headwise.see.masks import draw_mask


def maps(drawing: Drawing) -> list[np.ndarray]:
    """What is laid over the hatched sheet: True where a cell is allowed."""
    return [~np.ma.getmaskarray(axes.images[0].get_array()) for axes in drawing.figure.axes if axes.images]


def test_every_panel_is_a_map_of_the_mask() -> None:
    keep = torch.rand(2, 3, 4, 5) > 0.5
    drawn = draw_mask(keep)
    for number, drawn_map in enumerate(maps(drawn)):
        np.testing.assert_array_equal(drawn_map, keep[number // 3, number % 3].numpy())
    assert len(maps(drawn)) == 6
    titles = [axes.get_title(loc="left") for axes in drawn.figure.axes if axes.images]
    assert titles[0] == "row 0, head 0" and titles[-1] == "row 1, head 2"


def test_hidden_cells_show_the_hatch_behind_them_and_allowed_ones_cover_it(tmp_path: Path) -> None:
    keep = torch.tensor([[True, False], [False, True]])
    drawn = draw_mask(keep)
    [axes] = [axes for axes in drawn.figure.axes if axes.images]
    [sheet] = axes.patches
    assert sheet.get_hatch() and sheet.get_zorder() < axes.images[0].get_zorder()
    assert (sheet.get_x(), sheet.get_y(), sheet.get_width(), sheet.get_height()) == (-0.5, -0.5, 2, 2)
    picture = matplotlib.image.imread(drawn.save(tmp_path / "mask.png"))[..., :3]
    box = axes.get_position()
    height, width = picture.shape[:2]
    cells = picture[
        int((1 - box.y1) * height) : int((1 - box.y0) * height), int(box.x0 * width) : int(box.x1 * width)
    ]
    half = cells.shape[0] // 2
    inner = slice(20, half - 20)
    allowed, hidden = cells[inner, inner], cells[inner, half + 20 : -20]
    assert (
        np.ptp(allowed, axis=(0, 1)).max() < 0.01 and allowed[0, 0, 2] > allowed[0, 0, 0] + 0.3
    )  # plain blue
    assert len(np.unique(hidden.reshape(-1, 3), axis=0)) > 1 and hidden.mean() > 0.6  # grey with lines


def test_any_pattern_is_drawn_in_a_moment(tmp_path: Path) -> None:
    checks = (torch.arange(300)[:, None] + torch.arange(300)) % 2 == 0
    began = time.process_time()
    draw_mask(checks).save(tmp_path / "m.png")
    assert time.process_time() - began < 10  # a hatch for each run of cells took 50


def test_a_causal_mask_is_said_to_be_causal() -> None:
    caption = draw_mask(causal_keep(10)).caption
    assert "55 of 100 pairs are allowed (55%)" in caption and "this mask is causal" in caption
    assert "own position" not in caption and "nowhere" not in caption
    assert "causal" in draw_mask(window_keep(9, window=3)).caption


def test_a_wrong_causal_mask_is_not() -> None:
    for inverted in (~causal_keep(8), causal_keep(8).mT):  # without and with the diagonal
        caption = draw_mask(inverted).caption
        assert caption.endswith("later positions alone: this is a causal mask turned round.")
    off_by_one = torch.ones(5, 5).tril(1).bool()
    assert "4 queries may look at later positions: this mask is not causal" in draw_mask(off_by_one).caption
    others = ~torch.eye(4, dtype=torch.bool)
    others[3] = False
    caption = draw_mask(others).caption
    assert "3 queries may look at later positions" in caption
    assert "4 queries may not look at their own position" in caption  # key 3 is seen by the others
    assert "1 query may look nowhere" in caption


def test_padding_is_counted() -> None:
    ids = torch.tensor([[5, 6, 0, 0], [5, 6, 7, 8]])
    drawn = draw_mask(padding_keep(ids, 0))
    assert "2 keys are hidden from every query, as padding is" in drawn.caption
    assert [m.shape for m in maps(drawn)] == [(1, 4), (1, 4)]
    both = draw_mask(padding_keep(ids, 0) & causal_keep(4)).caption
    assert "causal" in both and "2 keys are hidden" in both and "own position" not in both
    assert "may look everywhere" in draw_mask(torch.ones(3, 3, dtype=torch.bool)).caption


def test_names_go_to_both_axes_of_a_square() -> None:
    drawn = draw_mask(causal_keep(3), queries=["Zwei", "Hunde", "\u72d7"], title="Who looks where")
    [axes] = [axes for axes in drawn.figure.axes if axes.images]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[:2] == ["Zwei", "Hunde"] and [x.get_text() for x in axes.get_xticklabels()] == names
    assert axes.get_xlabel().startswith("key (position)") and "query (position)" in axes.get_ylabel()


def test_many_maps_are_cut_and_the_caption_says_so(tmp_path: Path) -> None:
    drawn = draw_mask(torch.ones(20, 1, 1, 6, dtype=torch.bool))
    assert len(maps(drawn)) == 12 and "The first 12 of 20 maps are drawn." in drawn.caption
    assert drawn.save(tmp_path / "m.png").stat().st_size > 1000


def test_masks_and_names_of_other_kinds_are_taken() -> None:
    array = np.tril(np.ones((3, 3), dtype=bool))
    assert draw_mask(array).caption == draw_mask(array.tolist()).caption == draw_mask(causal_keep(3)).caption
    assert draw_mask(torch.eye(3).bool().to_sparse()).caption
    drawn = draw_mask(array, queries=[1, 2, 3])
    [axes] = [axes for axes in drawn.figure.axes if axes.images]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["1", "2", "3"]


def test_a_mask_that_hides_all_is_no_causal_mask() -> None:
    caption = draw_mask(torch.zeros(4, 4, dtype=torch.bool)).caption
    assert "the mask is inverted, or calls everything padding" in caption and "causal" not in caption


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("mask", "keep must be a boolean mask .*: got str"),
        (
            torch.empty(2, 2, dtype=torch.bool, device="meta"),
            "must hold values: got a tensor on the meta device",
        ),
        (torch.zeros(3, 3), r"keep must be boolean, True = may look: got torch\.float32; for numbers"),
        (torch.ones(3, dtype=torch.bool), r"must be \[Tq, Tk\].*got \[3\]; a padding mask"),
        (torch.ones(0, 3, dtype=torch.bool), r"got \[0, 3\]"),
    ],
)
def test_what_is_no_mask_is_refused_in_words(keep: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draw_mask(keep)


def test_names_must_fit() -> None:
    with pytest.raises(ConfigError, match="queries must name 3 positions: got 2 names"):
        draw_mask(causal_keep(3), queries=["a", "b"])
    with pytest.raises(ConfigError, match="keys must name 3 positions: got 1 name"):
        draw_mask(causal_keep(3), queries=["a", "b", "c"], keys=["a"])
