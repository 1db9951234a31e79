"""Pictures of attention: every layer, head and token is on it, and none of matplotlib's state is touched."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

from headwise.errors import ConfigError, StorageError
from headwise.see.maps import draw_attention
from headwise.see.positions import draw_positions

SOURCE = ["<zh>", "\u2581Friday", ",", "\u2581", "$", "5", "<eos>"]
TARGET = ["5", "\u5e74", "$$", "<eos>"]


def some_maps(num_layers: int = 2, num_heads: int = 3, shape: tuple[int, int] = (4, 7)) -> list[Tensor]:
    return [torch.randn(num_heads, *shape).softmax(-1) for _ in range(num_layers)]


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


def size_of(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", content[16:24])


def test_every_layer_and_head_is_drawn_with_its_weights(tmp_path: Path, figures: list[Figure]) -> None:
    maps = some_maps()
    draw_attention(maps, SOURCE, TARGET, tmp_path / "a.png")
    panels = {axes.get_title(): axes for axes in figures[0].axes if axes.get_title()}
    assert list(panels) == [f"layer {layer} head {head}" for layer in (1, 2) for head in (1, 2, 3)]
    for layer in (0, 1):
        for head in (0, 1, 2):
            image = panels[f"layer {layer + 1} head {head + 1}"].images[0]
            assert torch.equal(torch.tensor(image.get_array()), maps[layer][head])
            assert image.get_clim() == (0, 1)


def test_tokens_are_named_on_the_outer_panels_alone(tmp_path: Path, figures: list[Figure]) -> None:
    draw_attention(some_maps(), SOURCE, TARGET, tmp_path / "a.png")
    panels = {axes.get_title(): axes for axes in figures[0].axes}

    def names(panel: str, side: str) -> list[str]:
        axis = getattr(panels[panel], f"{side}axis")
        return [label.get_text() for label in axis.get_ticklabels()]

    drawn = ["<zh>", "_Friday", ",", "_", "$", "5", "<eos>"]
    assert names("layer 2 head 1", "x") == names("layer 2 head 3", "x") == drawn
    assert names("layer 1 head 1", "x") == [] and names("layer 1 head 2", "y") == []
    left = names("layer 1 head 1", "y")
    assert left == names("layer 2 head 1", "y")
    assert left[0] == "5" and left[1] in ("\u5e74", "U+5E74") and left[2:] == ["$$", "<eos>"]


def test_a_label_no_font_has_is_told(tmp_path: Path) -> None:
    rare = "\U00016a40"
    assert draw_attention(some_maps(shape=(1, 1)), [rare], ["a"], tmp_path / "a.png") is not None
    assert draw_attention(some_maps(shape=(1, 1)), ["b"], ["a"], tmp_path / "a.png") is None


@pytest.mark.parametrize(
    ("num_layers", "num_heads", "num_source", "num_target"), [(1, 1, 1, 1), (6, 8, 60, 60), (2, 4, 400, 3)]
)
def test_any_size_gives_a_picture_that_can_be_opened(
    num_layers: int, num_heads: int, num_source: int, num_target: int, tmp_path: Path
) -> None:
    path = tmp_path / "a.png"
    maps = some_maps(num_layers, num_heads, (num_target, num_source))
    draw_attention(maps, ["token"] * num_source, ["Wort"] * num_target, path)
    width, height = size_of(path)
    assert 100 < width < 6000 and 100 < height < 6000


def test_names_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"must be \[heads, 3 target tokens, 7 source tokens\]: got \[3, 4, 7\]"
    ):
        draw_attention(some_maps(), SOURCE, TARGET[1:], tmp_path / "a.png")
    with pytest.raises(ConfigError, match="got no map"):
        draw_attention([], SOURCE, TARGET, tmp_path / "a.png")


def test_pictures_leave_no_trace_and_no_half_file(tmp_path: Path) -> None:
    draw_attention(some_maps(), SOURCE, TARGET, tmp_path / "a.png")
    draw_positions(20, 16, tmp_path / "b.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]
    assert "matplotlib.pyplot" not in sys.modules
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        draw_positions(20, 16, tmp_path / "file" / "b.png")


def test_the_heat_map_is_the_encoding(tmp_path: Path, figures: list[Figure]) -> None:
    from headwise.model.positions import sinusoidal_table

    draw_positions(20, 16, tmp_path / "b.png")
    image = figures[0].axes[0].images[0]
    assert torch.equal(torch.tensor(image.get_array()), sinusoidal_table(20, 16))
    assert size_of(tmp_path / "b.png")[0] > 1000
