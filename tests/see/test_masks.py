"""The picture of a mask is the mask, and its caption says what the mask does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headwise.errors import ConfigError
from headwise.model.masks import causal_keep, padding_keep, window_keep
from headwise.see.drawing import Drawing
from headwise.see.masks import draw_mask


def maps(drawing: Drawing) -> list[np.ndarray]:
    return [np.asarray(axes.images[0].get_array()) for axes in drawing.figure.axes if axes.images]


def test_every_panel_is_a_map_of_the_mask() -> None:
    keep = torch.rand(2, 3, 4, 5) > 0.5
    drawn = draw_mask(keep)
    for number, drawn_map in enumerate(maps(drawn)):
        np.testing.assert_array_equal(drawn_map, keep[number // 3, number % 3].numpy())
    assert len(maps(drawn)) == 6
    titles = [axes.get_title(loc="left") for axes in drawn.figure.axes if axes.images]
    assert titles[0] == "row 0, head 0" and titles[-1] == "row 1, head 2"


def test_hidden_cells_are_hatched_and_allowed_ones_are_not() -> None:
    keep = torch.tensor([[True, False, False], [True, True, True], [False, True, False]])
    [axes] = [axes for axes in draw_mask(keep).figure.axes if axes.images]
    hatched = np.zeros((3, 3), dtype=bool)
    for patch in axes.patches:
        assert patch.get_hatch()
        left, top = round(patch.get_x() + 0.5), round(patch.get_y() + 0.5)
        hatched[top, left : left + round(patch.get_width())] = True
    np.testing.assert_array_equal(hatched, ~keep.numpy())


def test_a_causal_mask_is_said_to_be_causal() -> None:
    caption = draw_mask(causal_keep(10)).caption
    assert "55 of 100 pairs are allowed (55%)" in caption and "this mask is causal" in caption
    assert "own position" not in caption and "nowhere" not in caption
    assert "causal" in draw_mask(window_keep(9, window=3)).caption


def test_a_wrong_causal_mask_is_not() -> None:
    caption = draw_mask(~causal_keep(8)).caption
    assert "7 queries may look at later positions: this mask is not causal" in caption
    assert (
        "7 queries may not look at their own position" in caption
    )  # key 0, which nobody sees, counts as padding
    assert "1 query may look nowhere" in caption
    off_by_one = torch.ones(5, 5).tril(1).bool()
    assert "4 queries may look at later positions" in draw_mask(off_by_one).caption


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


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (torch.zeros(3, 3), r"keep must be boolean, True = may look: got torch\.float32; for numbers"),
        (torch.ones(3, dtype=torch.bool), r"must be \[Tq, Tk\].*got \[3\]; a padding mask"),
        (torch.ones(0, 3, dtype=torch.bool), r"got \[0, 3\]"),
    ],
)
def test_what_is_no_mask_is_refused_in_words(keep: torch.Tensor, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draw_mask(keep)


def test_names_must_fit() -> None:
    with pytest.raises(ConfigError, match="queries must name 3 positions: got 2 names"):
        draw_mask(causal_keep(3), queries=["a", "b"])
    with pytest.raises(ConfigError, match="keys must name 3 positions: got 1 name"):
        draw_mask(causal_keep(3), queries=["a", "b", "c"], keys=["a"])
