"""Pictures of attention: every layer, head and token is on it, and none of matplotlib's state is touched."""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headwise.errors import ConfigError, StorageError
from headwise.see.drawing import Drawing
from headwise.see.heads import head_facts
from headwise.see.heads_told import percent
from headwise.see.maps import draw_attention
from headwise.see.stacks import Layer, Stack, StackKind

SOURCE = ("<zh>", "\u2581Friday", ",", "\u2581", "$", "5", "<eos>")
TARGET = ("5", "\u5e74", "$$", "<eos>")


def some(
    num_layers: int = 2,
    num_heads: int = 3,
    queries: tuple[str, ...] = TARGET,
    keys: tuple[str, ...] = SOURCE,
    kind: StackKind = "cross",
    hidden: int = 0,
) -> Stack:
    """Random weights; the last `hidden` keys are masked."""
    keep = torch.ones(1, len(queries), len(keys), dtype=torch.bool)
    keep[..., len(keys) - hidden :] = False
    scores = torch.randn(num_layers, num_heads, len(queries), len(keys))
    layers = tuple(Layer("", each.masked_fill(~keep, -torch.inf).softmax(-1), keep) for each in scores)
    return Stack(kind, layers, queries, keys, ("source: read", "target: written"))


def panels(drawing: Drawing) -> dict[str, Axes]:
    """The panels by the first line of their titles."""
    found = {axes.get_title(loc="left"): axes for axes in drawing.figure.axes}
    return {title.splitlines()[0]: axes for title, axes in found.items() if title}


def said(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.texts]


def size_of(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", content[16:24])


def test_every_layer_and_head_is_drawn_with_its_weights() -> None:
    stack = some()
    drawn = panels(draw_attention([stack], "t"))
    assert list(drawn) == [f"layer {layer} head {head}" for layer in (1, 2) for head in (1, 2, 3)]
    for layer in (0, 1):
        for head in (0, 1, 2):
            image = drawn[f"layer {layer + 1} head {head + 1}"].images[0]
            assert np.array_equal(np.asarray(image.get_array()), stack.layers[layer].weights[head].numpy())
            assert image.get_clim() == (0, 1)


def test_what_is_no_weight_is_neither_masked_nor_a_weight(tmp_path: Path) -> None:
    stack = some(1, 1, hidden=2)
    stack.layers[0].weights[0, 1] = torch.nan
    drawing = draw_attention([stack], "t")
    (axes,) = panels(drawing).values()
    red, image = axes.images
    odd = np.zeros((4, 7), bool)
    odd[1, :5] = True  # and no cell that is masked
    assert np.array_equal(~np.ma.getmaskarray(red.get_array()), odd)
    hidden = np.arange(7)[None].repeat(4, 0) >= 5
    assert np.array_equal(np.ma.getmaskarray(image.get_array()), odd | hidden)
    r, g, b, alpha = red.cmap(1.0)
    assert alpha == 1 and r > 2 * max(g, b)
    assert "Red: not a weight (NaN, or outside 0 to 1)." in drawing.caption
    assert "Red" not in draw_attention([some(1, 1, hidden=2)], "t").caption
    drawing.save(tmp_path / "nan.png")
    assert size_of(tmp_path / "nan.png")


def test_stacks_of_one_kind_are_numbered() -> None:
    one, two = some(1, 1, SOURCE, kind="self"), some(1, 1, TARGET, TARGET, kind="self")
    told = said(draw_attention([one, two], "t").figure)
    assert "Self-attention 1" in told and "Self-attention 2" in told and "Self-attention" not in told
    assert "Self-attention" in said(draw_attention([one, some()], "t").figure)


def test_percents_are_rounded_down_so_that_the_limit_is_seen() -> None:
    """What is not called uniform does not bear the 99 % of one that is."""
    for away, title in ((0.0935, "98 %"), (0.07, "99 % uniform")):
        near = torch.tensor([[0.5 + away, 0.5 - away]]).repeat(4, 1) / 2
        layer = Layer("", torch.cat([near, near.flip(1)], 1)[None], torch.ones(1, 4, 4, dtype=torch.bool))
        (facts,) = head_facts(layer)
        assert 0.985 < facts.share < 0.995
        (axes,) = panels(draw_attention([Stack("self", (layer,), TARGET, TARGET, ("", ""))], "t")).values()
        assert axes.get_title(loc="left").splitlines()[1] == title
    assert [percent(share) for share in (0.9899, 0.99, 0.57, 1.0, float("nan"))] == [
        "98",
        "99",
        "57",
        "100",
        "NaN",
    ]


def test_names_of_thousands_of_characters_are_cut(tmp_path: Path) -> None:
    stack = some(1, 1, ("x" * 5000, *TARGET[1:]), ("y" * 100_000, *SOURCE[1:]))
    start = time.process_time()
    drawing = draw_attention([stack], "t" * 5000)
    drawing.save(tmp_path / "long.png")
    assert time.process_time() - start < 5
    assert max(size_of(tmp_path / "long.png")) < 4000
    (axes,) = panels(drawing).values()
    assert axes.get_yticklabels()[0].get_text() == "x" * 31 + "\u2026"


def test_masked_cells_are_not_zero_weights() -> None:
    stack = some(hidden=3)
    stack.layers[0].weights[0, 0] = torch.tensor([1.0, 0, 0, 0, 0, 0, 0])
    drawing = draw_attention([stack], "t")
    for axes in panels(drawing).values():
        shown = axes.images[0].get_array()
        assert isinstance(shown, np.ma.MaskedArray)
        assert np.array_equal(np.ma.getmaskarray(shown), np.arange(7)[None].repeat(4, 0) >= 4)
        assert axes.patch.get_hatch() and axes.images[0].cmap(np.ma.masked)[3] == 0, (
            "the ground shows through"
        )
    assert "Hatched: masked" in drawing.caption
    assert "Hatched" not in draw_attention([some()], "t").caption


def test_each_head_may_have_a_mask_of_its_own() -> None:
    keep = torch.stack([torch.ones(2, 2, dtype=torch.bool), torch.eye(2, dtype=torch.bool)])
    stack = Stack(
        "self", (Layer("", torch.eye(2).expand(2, 2, 2), keep),), ("a", "b"), ("a", "b"), ("r", "q")
    )
    masks = [
        np.ma.getmaskarray(axes.images[0].get_array())
        for axes in panels(draw_attention([stack], "t")).values()
    ]
    assert [mask.tolist() for mask in masks] == [[[False] * 2] * 2, [[False, True], [True, False]]]


def test_entropy_and_collapse_stand_in_the_titles() -> None:
    stack = some(num_layers=1, queries=SOURCE, kind="self")
    stack.layers[0].weights[0] = 1 / 7
    stack.layers[0].weights[1] = torch.eye(7)
    stack.layers[0].weights[2] = torch.nan
    titles = [axes.get_title(loc="left") for axes in panels(draw_attention([stack], "t")).values()]
    assert titles == ["layer 1 head 1\n100 % uniform", "layer 1 head 2\n0 % one-hot", "layer 1 head 3\nNaN"]


def test_tokens_are_named_on_the_outer_panels_alone() -> None:
    drawn = panels(draw_attention([some()], "t"))

    def names(panel: str, side: str) -> list[str]:
        axis = getattr(drawn[panel], f"{side}axis")
        return [label.get_text() for label in axis.get_ticklabels()]

    shown = ["<zh>", "_Friday", ",", "_", "$", "5", "<eos>"]
    assert names("layer 2 head 1", "x") == names("layer 2 head 3", "x") == shown
    assert names("layer 1 head 1", "x") == [] and names("layer 1 head 2", "y") == []
    left = names("layer 1 head 1", "y")
    assert left == names("layer 2 head 1", "y")
    assert left[0] == "5" and left[1] in ("\u5e74", "U+5E74") and left[2:] == ["$$", "<eos>"]


def test_several_stacks_stand_below_one_another_under_their_names() -> None:
    drawing = draw_attention([some(1, 2), some(1, 1, SOURCE, SOURCE, "encoder")], "A title of $5")
    lines = said(drawing.figure)
    assert "A title of $5" in lines
    assert {"Cross-attention", "Encoder self-attention"} <= set(lines)
    assert "Cross-attention" not in said(draw_attention([some()], "t").figure)
    for part in ("staircase", "dark diagonal", "Percent: the head's entropy"):
        assert part in drawing.caption
    boxes = [axes.get_position() for axes in drawing.figure.axes if axes.images]
    assert len(boxes) == 3 and boxes[0].y0 > boxes[2].y1, "the second stack is below the first"


@pytest.mark.parametrize("hidden", [0, 2])
def test_nothing_lies_over_anything_else_or_outside(hidden: int) -> None:
    stacks = [some(2, 3, hidden=hidden), some(1, 5, ("a",), ("one", "word"), "decoder")]
    drawing = draw_attention(stacks, "Attention while translating Friday")
    figure = drawing.figure
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert box.x0 >= -0.01 and box.y0 >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    assert len(boxes) == 2 * 3 + 5 + 2, "the panels and two colour bars"
    for place, one in enumerate(boxes):
        for other in boxes[place + 1 :]:
            assert not one.overlaps(other)


def test_a_label_no_font_has_is_told() -> None:
    assert draw_attention([some(1, 1, ("a",), ("\U00016a40",))], "t").notice is not None
    assert draw_attention([some(1, 1, ("a",), ("b",))], "t").notice is None


@pytest.mark.parametrize(
    ("num_layers", "num_heads", "num_keys", "num_queries"), [(1, 1, 1, 1), (4, 6, 60, 60), (2, 4, 400, 3)]
)
def test_any_size_gives_a_picture_that_can_be_opened(
    num_layers: int, num_heads: int, num_keys: int, num_queries: int, tmp_path: Path
) -> None:
    stack = some(num_layers, num_heads, ("Wort",) * num_queries, ("token",) * num_keys)
    draw_attention([stack], "t").save(tmp_path / "a.png")
    width, height = size_of(tmp_path / "a.png")
    assert 100 < width < 6000 and 100 < height < 6000


def test_names_that_do_not_fit_are_refused() -> None:
    stack = some()
    wrong = Stack("cross", stack.layers, TARGET[1:], SOURCE, stack.axes)
    with pytest.raises(
        ConfigError, match=r"must be \[heads, 3 queries, 7 keys\]: got \[3, 4, 7\], \[3, 4, 7\]; name"
    ):
        draw_attention([wrong], "t")
    with pytest.raises(ConfigError, match="at least one stack with one layer: got none"):
        draw_attention([], "t")


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_pictures_leave_no_trace_and_no_half_file(ending: str, tmp_path: Path) -> None:
    drawing = draw_attention([some()], "t")
    drawing.save(tmp_path / f"a.{ending}")
    first = (tmp_path / f"a.{ending}").read_bytes()
    draw_attention([some()], "t")
    drawing.save(tmp_path / f"a.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{ending}"]
    pyplot = sys.modules.get("matplotlib.pyplot")  # another test may have brought it
    assert pyplot is None or pyplot.get_fignums() == []
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        drawing.save(tmp_path / "file" / f"b.{ending}")
